"""Record files, read by operators of a program.

Images are written into RecordIO files as tensors, once. A program then records the operators that
read them: those that make readers stand in the startup program, which runs once, and the read in
the main program, which runs in every step.

    python -m gpufeed.examples.open_files --data DIR
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import gpufeed as gf
from gpufeed.convert import convert_reader_to_recordio_files
from gpufeed.demo.models import Images
from gpufeed.examples.files import arguments, data_folder, made_mnist
from gpufeed.examples.learner import Learner

RECORDS_A_FILE = 250
MAX_IMAGES = 2500


def write_records(mnist: Path, folder: Path) -> int:
    """Write each image as a record of two tensors; return how many there are."""
    with gf.program_guard(gf.Program()):
        fields = [gf.data("image", [784]), gf.data("label", [1], "int64")]
        feeder = gf.DataFeeder(fields, "cpu")
    one_by_one = gf.batch(gf.reader.firstn(gf.dataset.mnist.test(mnist), MAX_IMAGES), 1)
    path = folder / "mnist.recordio"
    return convert_reader_to_recordio_files(
        path, RECORDS_A_FILE, one_by_one, feeder, compressor="none"
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Write, read, train."""
    options = arguments(__doc__, argv)
    with data_folder(options.data, made_mnist) as data, TemporaryDirectory() as work:
        print(f"{write_records(data / 'mnist', Path(work))} records")

        main_program, startup = gf.Program(), gf.Program()
        with gf.program_guard(main_program, startup):
            # Two threads read two files at a time; what is read first comes first.
            reader = gf.layers.open_files(
                f"{work}/mnist-*.recordio", [[784], [1]], [0, 0], ["float32", "int64"], thread_num=2
            )
            reader = gf.layers.shuffle(reader, buffer_size=10_000, seed=1)
            reader = gf.layers.batch(reader, options.batch_size)
            reader = gf.layers.double_buffer(reader)
            image, label = gf.layers.read_file(reader)  # type: ignore[misc] # two, so a list

        place = gf.present_places()[0]
        executor = gf.Executor(place)
        executor.run(startup)
        learner = Learner(Images(pixels=784, classes=10), [place])
        for number in range(options.passes):
            losses = []
            while reader.has_next():
                batch = executor.run(main_program, fetch_list=[image, label], return_numpy=False)
                losses.append(learner.step(dict(zip(("image", "label"), batch, strict=True))))
            reader.reset()  # the next pass; without it, the data stays at its end
            print(f"pass {number}: {len(losses)} steps, loss {sum(losses) / len(losses):.3f}")


if __name__ == "__main__":
    main()
