package sessiongit

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
)

func TestARunnerWaitsUntilTheContainerWithTheCredentialsListens(t *testing.T) {
	directory := t.TempDir()
	client := NewClient(directory)
	failed := make(chan error, 1)
	go func() {
		_, err := client.Push(t.Context(), "shop", nil)
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

func TestAContainerThatNeverListensIsAnErrorAfterAMinute(t *testing.T) {
	directory := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		if _, err := dial(context.Background(), filepath.Join(directory, socketName)); err == nil {
			t.Error("connected to nothing")
		}
	})
}
