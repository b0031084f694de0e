"""``gpufeed demo``: three small models, trained from files, on any number of devices.

Images are dense, sentences ragged, census rows sparse. Everything is written as a user of gpufeed
would write it, against `array_module` and ``with place:``, so the same lines run on a CPU, on
virtual devices and on GPUs. There is no deep learning framework: gradients are spelled out.

`tasks` says what is read, `models` what is learned, `train` and `adam` how, `report` what is shown.
"""
