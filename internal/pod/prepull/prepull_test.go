package prepull

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestProgramIsCopiedSoThatItRunsInImagesWithoutOne(t *testing.T) {
	directory := t.TempDir()
	for range 2 { // the container may restart
		if err := Run(t.Context(), []string{"--copy-to", directory}, os.Getenv, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	copied := filepath.Join(directory, "session-runner")
	info, err := os.Stat(copied)
	if err != nil || info.Mode() != programMode {
		t.Fatalf("mode %v, error %v", info, err)
	}
	got, err := os.ReadFile(copied)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if want, err := os.ReadFile(self); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes instead of %d, error %v", len(got), len(want), err)
	}
}

func TestContainerOfAnImageEndsAndTheLastOneWaits(t *testing.T) {
	if err := Run(t.Context(), nil, os.Getenv, io.Discard); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, []string{"--wait"}, os.Getenv, io.Discard) }()
	select {
	case err := <-ended:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
