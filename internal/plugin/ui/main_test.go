package ui

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	// The fake client does not end a list that is a watch.
	os.Setenv("KUBE_FEATURE_WatchListClient", "false")
	os.Exit(m.Run())
}
