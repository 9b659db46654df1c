package sessiongit

import (
	"net"
	"path/filepath"
	"testing"
)

func TestARunnerWaitsUntilTheContainerWithTheCredentialsListens(t *testing.T) {
	directory := t.TempDir()
	client := NewClient(directory)
	failed := make(chan error, 1)
	go func() {
		_, err := client.Push(t.Context(), "shop", "", nil)
		failed <- err
	}()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(directory, socketName))
	if err != nil {
		t.Fatal(err)
	}
	connection, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	connection.Close()
	if err := <-failed; err == nil {
		t.Error("a push succeeded without an answer")
	}
}
