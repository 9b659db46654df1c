// Package render renders Yardmaster's objects as lines of text. Its functions are pure: they take objects, a style and the time.
//
// The plugin and `make demo` share this package, so both show objects in the same way.
package render
