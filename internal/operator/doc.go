// Package operator assembles the operator's process: flags, cache, health checks, metrics,
// certificates, and the controllers to run. It contains no logic of a controller.
package operator
