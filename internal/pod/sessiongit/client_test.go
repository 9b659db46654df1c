package sessiongit

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
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
	require.NoError(t, err)
	connection, err := listener.Accept()
	require.NoError(t, err)
	connection.Close()
	if err := <-failed; err == nil {
		t.Error("a push succeeded without an answer")
	}
}
