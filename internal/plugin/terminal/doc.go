// Package terminal writes to a terminal, a pipe or a file: colors, aligned columns, truncated lines, and text that is redrawn in
// place.
//
// It does not depend on the content, which package render renders for the plugin and for the demo.
package terminal
