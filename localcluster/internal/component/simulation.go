package component

import _ "embed"

// Simulation is kwok's configuration.
//
//go:embed simulation.yaml
var Simulation string
