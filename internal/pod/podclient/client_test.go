package podclient

import (
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

func newTestClient(t *testing.T, handler http.HandlerFunc) (client *Client, directory string) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	directory = t.TempDir()
	writeFile(t, filepath.Join(directory, "token"), "one\n")
	writeFile(t, filepath.Join(directory, "ca.crt"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	client, err = New(func(name string) string {
		return map[string]string{"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}[name]
	}, directory)
	require.NoError(t, err)
	return client, directory
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func TestRequestsHaveTheTokenThatIsMountedNow(t *testing.T) {
	var tokens []string
	client, directory := newTestClient(t, func(_ http.ResponseWriter, r *http.Request) { tokens = append(tokens, r.Header.Get("Authorization")) })
	for _, token := range []string{"one", "two"} {
		writeFile(t, filepath.Join(directory, "token"), token+"\n")
		response, err := client.Do(t.Context(), http.MethodGet, "/api", nil, nil)
		require.NoError(t, err)
		response.Body.Close()
	}
	require.Equal(t, []string{"Bearer one", "Bearer two"}, tokens)
}

func TestErrorsHaveTheMessageOfTheStatus(t *testing.T) {
	for want, body := range map[string]string{
		"pods is forbidden":       `{"kind": "Status", "message": "pods is forbidden"}`,
		"no JSON":                 "no JSON\n",
		strings.Repeat("x", 1024): strings.Repeat("x", 1<<20),
	} {
		client, _ := newTestClient(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, body)
		})
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
	writeFile(t, filepath.Join(directory, "ca.crt"), "none")
	_, err = New(func(string) string { return "1" }, directory)
	require.ErrorContains(t, err, "no certificate")
}
