"""The import names of PaddlePaddle's feeding code, so that a script of its time runs here.

Put ``gpufeed.compat.`` in front of ``paddle`` in a script's import lines, and change nothing else:

    import paddle                        import gpufeed.compat.paddle as paddle
    import paddle.v2 as paddle           import gpufeed.compat.paddle.v2 as paddle
    import paddle.v2.fluid as fluid      import gpufeed.compat.paddle.v2.fluid as fluid
    import paddle.fluid as fluid         import gpufeed.compat.paddle.fluid as fluid
    from paddle.fluid import core        from gpufeed.compat.paddle.fluid import core
    from paddle.trainer.PyDataProvider2 import *
                    from gpufeed.compat.paddle.trainer.PyDataProvider2 import *
    from paddle.trainer_config_helpers import *
                    from gpufeed.compat.paddle.trainer_config_helpers import *

>>> from gpufeed.compat import fluid, paddle
>>> with fluid.program_guard(fluid.Program()):
...     words = fluid.layers.data(name="words", shape=[1], dtype="int64", lod_level=1)
...     feeder = fluid.DataFeeder(feed_list=[words], place=fluid.CPUPlace())
>>> reader = paddle.batch(paddle.reader.firstn(lambda: iter([([1, 2],), ([3],), ([4],)]), 2), 2)
>>> [feed["words"].lod() for feed in feeder.decorate_reader(reader, multi_devices=False)()]
[[[0, 2, 3]]]

What is here are names and orders of arguments; what they do is done in the rest of gpufeed, and
where the two mean different things by default the docstring here says so. There are no network
layers, optimizers or trainers; what scripts say only to these (strategies, scopes) is taken, and
changes nothing. Of what is repaired in the rest of gpufeed nothing is undone: errors arrive,
nothing hangs, data is not lost.
"""

from __future__ import annotations

from gpufeed.compat import paddle
from gpufeed.compat.paddle import fluid

__all__ = ["fluid", "paddle"]
