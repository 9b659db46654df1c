// Package board draws SequentialJobs: objects and the time go in, lines come out. It reads
// no clock and writes nowhere.
//
// The plugin and `make demo` show the same board, so that who has seen the demo knows the
// plugin. It stands with the plugin, which is what ships.
package render
