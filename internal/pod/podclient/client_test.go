package podclient

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/test/leasetest"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestErrorsHaveTheMessageOfTheStatus(t *testing.T) {
	server := leasetest.New(t)
	client, err := New(server.Getenv, server.Directory)
	require.NoError(t, err)
	server.Status = http.StatusForbidden
	for want, body := range map[string]string{
		"pods is forbidden":       `{"kind": "Status", "message": "pods is forbidden"}`,
		"no JSON":                 "no JSON\n",
		strings.Repeat("x", 1024): strings.Repeat("x", 1<<20),
	} {
		server.Answer = body
		_, err := client.Do(t.Context(), http.MethodGet, "/api", nil, nil) //nolint:bodyclose // there is no body
		status := (*StatusError)(nil)
		require.True(t, errors.As(err, &status) && status.Code == http.StatusForbidden && status.Body == want &&
			err.Error() == "the API server returned 403 Forbidden: "+want, "%v", err)
	}
}

func TestClientOutsideAPodIsAnError(t *testing.T) {
	directory := t.TempDir()
	_, err := New(func(string) string { return "" }, directory)
	require.ErrorContains(t, err, "KUBERNETES_SERVICE_HOST")
	_, err = New(func(string) string { return "1" }, directory)
	require.ErrorIs(t, err, os.ErrNotExist) // there is no certificate
	require.NoError(t, os.WriteFile(filepath.Join(directory, "ca.crt"), []byte("none"), 0o600))
	_, err = New(func(string) string { return "1" }, directory)
	require.ErrorContains(t, err, "no certificate")
}
