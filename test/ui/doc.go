// Package ui tests `kubectl yardmaster ui` in a real browser, headless Chromium, against the API server of KUBECONFIG. The
// plugin runs as a process of its own, so that its memory can be measured.
//
// It is a Go module of its own, because nobody who builds the operator or the plugin needs the client of the browser.
package ui
