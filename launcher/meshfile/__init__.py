"""One file from which a mesh of one's own models and providers is started: `hedgerow up mesh.yaml`.

`schema` has its keys, `reading` makes one of a file or reports everything that is wrong with it, and `parts` has the
services that it means, with their settings. From these, `processes` makes the processes on this machine, `compose` and
`helm` the containers. `preflight` checks the settings with the services' own code, and `following` brings a running
mesh to the file as it is now.
"""
