"""Models that answer at once, while their own devices compile (START).

`work` is the compilation in the background. `file_model` is a model of a file that an engine has read alone; both import little,
so that the first answer comes early. `starting_model` is one on devices that start fast, `devices` says which those are."""
