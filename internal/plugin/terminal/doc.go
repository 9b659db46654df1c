// Package terminal writes to a terminal, or to what is none: colours, columns, lines cut
// to the screen, and text drawn again and again in one place.
//
// It knows nothing of what is written. That is package board, which both the plugin and
// the demo show on such a screen, so the two cannot come to differ.
package terminal
