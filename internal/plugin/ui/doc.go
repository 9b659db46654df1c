// Package ui is the server of `kubectl yardmaster ui`, which shows the objects of a cluster in a browser on the same machine.
//
//   - view computes the content of the pages, without a client, clock or I/O;
//   - page writes it as HTML;
//   - watch keeps the objects up to date;
//   - this package serves the pages, and runs actions as commands of the plugin: a user can type each of them.
//
// Anything may send requests to the server: other programs, users of the machine, and pages of other sites in the user's browser.
// guard.go lets only the page through that was opened with the token.
package ui
