"""One file from which a mesh of one's own models and providers is started: `hedgerow up mesh.yaml`.

`schema` is what may stand in it, `reading` makes one of a file or says everything that is wrong with it, and `parts` is
what it means: the services and their settings. From these, `processes` makes what runs on this machine, `compose` and
`helm` what runs in containers. `preflight` asks the services' own code what it says of their settings, and
`following` brings a running mesh to what the file says now.
"""
