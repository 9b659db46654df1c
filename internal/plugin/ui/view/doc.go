// Package view computes the content of the pages of `kubectl yardmaster ui` from objects and the time.
//
// It has no client, clock or I/O. All text that users can write passes through cleanLine or cleanText, so that no page shows control
// characters; package page escapes it.
package view
