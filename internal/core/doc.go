// Package core contains what the packages that decide have in common: events, problems and
// refusals. It has no client, no clock and no I/O.
package core
