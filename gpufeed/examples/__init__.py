"""Examples, a page each: ``python -m gpufeed.examples.mnist``, and the others below.

    mnist               images from files, shuffled, batched, `gpufeed.train` with its events
    sentiment           sentences of any length, batches of so many words
    ads                 sparse rows, densified where they arrive
    gan_inputs          one sample out of several readers: images, noise and constants
    provider_mnist      `@provider` over files of lines
    provider_sentiment  `@provider` that learns its input types from a dictionary
    open_files          record files, reader operators and an executor
    multi_gpu           every batch shared by all devices

Each runs on the first CUDA device, or without one on the host; ``GPUFEED_VIRTUAL_DEVICES=2`` makes
devices out of host memory. ``--data DIR`` is a folder with ``mnist/``, ``rt-polarity/`` and
``a9a/``; without it, small files of the same formats are made up, in which there is something to
learn. The models are those of `gpufeed.demo`.
"""
