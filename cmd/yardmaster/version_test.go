package main

import (
	"strings"
	"testing"
)

func TestVersionIsACommandOfTheOperatorAndOfTheWorker(t *testing.T) {
	for args, want := range map[string]bool{
		"version": true, "worker version": true, "egress-proxy version": true,
		"": false, "worker": false, "worker --exec -- version": false, "version worker": false,
	} {
		if got := isVersionCommand(strings.Fields(args)); got != want {
			t.Errorf("%q: %t, want %t", args, got, want)
		}
	}
}
