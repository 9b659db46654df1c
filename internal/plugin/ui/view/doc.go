// Package view computes what the pages of `kubectl yardmaster ui` show: from objects, and from the time.
//
// It has no client, clock or I/O. All text that users can write passes through cleanLine or cleanText, so that no page
// shows control characters; package page escapes it.
package view
