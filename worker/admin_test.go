package worker

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/pod/adminauth"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/ports"
	"github.com/yardmaster/yardmaster/test/require"
)

// operatorKey returns the keys of an operator, and a file with its public key.
func operatorKey(t *testing.T) (keys *adminauth.Keys, file string) {
	t.Helper()
	text, err := adminauth.NewPrivateKey()
	require.NoError(t, err)
	keys, err = adminauth.ParsePrivateKey(text)
	require.NoError(t, err)
	file = filepath.Join(t.TempDir(), "operator.pem")
	writePublicKey(t, file, keys)
	return keys, file
}

func writePublicKey(t *testing.T, file string, keys *adminauth.Keys) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, []byte(keys.PublicKey()), 0o600))
}

// newAdminWorker returns a worker that does not run, for requests to its admin API.
func newAdminWorker(t *testing.T, o Options) *Worker {
	t.Helper()
	env := newUnreachableEnv(t)
	o.Config = env.config()
	return env.newWorker(o, blockingHandler(nil))
}

func signedToken(t *testing.T, keys *adminauth.Keys, worker, action string, at time.Time) string {
	t.Helper()
	token, err := keys.Sign(adminauth.Request{Worker: worker, Action: action}, at)
	require.NoError(t, err)
	return token
}

// callAdmin sends a request to the admin API from the worker's host.
func callAdmin(t *testing.T, w *Worker, method, path string, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	return callAdminFrom(t, w, "127.0.0.1:1", method, path, header)
}

func callAdminFrom(t *testing.T, w *Worker, address, method, path string, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)
	request.RemoteAddr, request.Header = address, header
	response := httptest.NewRecorder()
	w.AdminHandler().ServeHTTP(response, request)
	return response
}

// drainWith sends a request to drain a worker from another host, and returns the status of the response.
func drainWith(t *testing.T, w *Worker, authorization string) int {
	t.Helper()
	return callAdminFrom(t, w, "10.0.0.1:1", http.MethodPost, "/drain", http.Header{"Authorization": {authorization}}).Code
}

func TestRequestsThatChangeAWorkerNeedATokenOfTheOperator(t *testing.T) {
	t.Parallel()
	keys, keyFile := operatorKey(t)
	others, _ := operatorKey(t)
	w := newAdminWorker(t, Options{Namespace: "team", Pod: "mail-0", AdminKeyFile: keyFile})
	now := time.Now()
	resume := "Bearer " + signedToken(t, keys, "team/mail-0", "resume", now)
	for title, authorization := range map[string]string{
		"no token":                    "",
		"no Bearer token":             "Basic eDp4",
		"a token of another operator": "Bearer " + signedToken(t, others, "team/mail-0", "drain", now),
		"a token for another Pod":     "Bearer " + signedToken(t, keys, "team/mail-1", "drain", now),
		"a token for another action":  resume,
		"an expired token":            "Bearer " + signedToken(t, keys, "team/mail-0", "drain", now.Add(-time.Hour)),
	} {
		got := drainWith(t, w, authorization)
		require.True(t, got == http.StatusForbidden, "%s: POST /drain returned %d", title, got)
	}
	require.Equal(t, http.StatusForbidden, callAdmin(t, w, http.MethodPost, "/resume", nil).Code)
	require.Equal(t, http.StatusOK, callAdmin(t, w, http.MethodPost, "/resume", http.Header{"Authorization": {resume}}).Code)
	require.True(t, w.Stats().State == StateRunning, "a refused request drained the worker")
	got := drainWith(t, w, "Bearer "+signedToken(t, keys, "team/mail-0", "drain", now))
	require.True(t, got == http.StatusAccepted && w.Stats().State != StateRunning, "POST /drain with a valid token returned %d", got)
}

func TestANewKeyOfTheOperatorAppliesWithoutARestart(t *testing.T) {
	t.Parallel()
	_, keyFile := operatorKey(t)
	renewed, _ := operatorKey(t)
	w := newAdminWorker(t, Options{Namespace: "team", Pod: "mail-0", AdminKeyFile: keyFile})
	drain := func() int {
		return drainWith(t, w, "Bearer "+signedToken(t, renewed, "team/mail-0", adminauth.ActionDrain, time.Now()))
	}
	require.Equal(t, http.StatusForbidden, drain())
	writePublicKey(t, keyFile, renewed)
	require.Equal(t, http.StatusAccepted, drain())
	require.NoError(t, os.WriteFile(keyFile, nil, 0o600))
	require.Equal(t, http.StatusForbidden, drain())
}

func TestWorkersAreDrainedWithoutATokenIfTheirOperatorPublishesNoKey(t *testing.T) {
	t.Parallel()
	w := newAdminWorker(t, Options{AdminKeyFile: filepath.Join(t.TempDir(), "operator.pem")})
	require.Equal(t, http.StatusAccepted, drainWith(t, w, ""))
}

func TestAWorkerWithoutAnOperatorAcceptsRequestsFromItsOwnHostOnly(t *testing.T) {
	t.Parallel()
	w := newAdminWorker(t, Options{})
	for address, want := range map[string]int{
		"127.0.0.1:1": http.StatusAccepted, "[::1]:1": http.StatusAccepted,
		"10.0.0.1:1": http.StatusForbidden, "[fd00::1]:1": http.StatusForbidden, "": http.StatusForbidden,
	} {
		got := callAdminFrom(t, w, address, http.MethodPost, "/drain", nil).Code
		require.True(t, got == want, "POST /drain from %q returned %d, want %d", address, got, want)
	}
}

func TestThePreStopHookNeedsTheSecretOfTheRevision(t *testing.T) {
	t.Parallel()
	w := newAdminWorker(t, Options{PreStopSecret: "s3cret"})
	preStop := func(secret string) int {
		return callAdmin(t, w, http.MethodGet, "/prestop", http.Header{adminauth.PreStopHeader: {secret}}).Code
	}
	require.Equal(t, http.StatusNotFound, preStop(""))
	require.Equal(t, http.StatusNotFound, preStop("guess"))
	require.True(t, w.Stats().State == StateRunning && w.shutdown.Err() == nil, "a request without the secret ends the worker")
	require.Equal(t, http.StatusOK, preStop("s3cret"))
	require.True(t, w.shutdown.Err() != nil, "the worker does not end")
}

func TestMetricsWithTheirOwnAddressAreNotServedByTheAdminAPI(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	admin, metrics := ports.Reserve(t).String(), ports.Reserve(t).String()
	w := env.start(env.config(func(c *Config) { c.AdminAddress, c.MetricsAddress = admin, metrics }), blockingHandler(nil))
	poll.Until(t, "the worker to be attached", func() bool { return w.Stats().Attached })
	for url, want := range map[string]int{
		metrics + "/metrics": http.StatusOK, admin + "/metrics": http.StatusNotFound,
		admin + "/stats": http.StatusOK, metrics + "/stats": http.StatusNotFound,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+url, http.NoBody)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		_ = response.Body.Close()
		require.True(t, response.StatusCode == want, "GET %s returned %d, want %d", url, response.StatusCode, want)
	}
	requireCleanShutdown(t, w)
}

func TestAWorkerRunsWithoutMetricsIfAnotherProcessHasTheirPort(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	w := env.start(env.config(func(c *Config) { c.MetricsAddress = taken.Addr().String() }), blockingHandler(nil))
	poll.Until(t, "the worker to be attached", func() bool { return w.Stats().Attached })
	requireCleanShutdown(t, w)
}

func TestAFloodOfTheAdminAPIDoesNotFailTheLivenessProbe(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	address := ports.Reserve(t).String()
	w := env.start(env.config(func(c *Config) { c.AdminAddress = address }), blockingHandler(nil))
	poll.Until(t, "the worker to be attached", func() bool { return w.Stats().Attached })
	// Connections from another address than that of the probe, which send the begin of a request.
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}
	var flood []net.Conn
	for range 3 * maxAdminConnections {
		c, err := dialer.DialContext(t.Context(), "tcp", address)
		require.NoError(t, err)
		_, _ = io.WriteString(c, "POST /drain HTTP/1.1\r\nHost: x\r\n")
		flood = append(flood, c)
	}
	probe := &http.Client{Timeout: testTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	for range 10 {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/livez", http.NoBody)
		require.NoError(t, err)
		response, err := probe.Do(request)
		require.True(t, err == nil, "the liveness probe fails: %v", err)
		_ = response.Body.Close()
	}
	_, err := flood[0].Read(make([]byte, 1))
	require.True(t, err != nil && !strings.Contains(err.Error(), "timeout"), "the oldest connection of the flood is open: %v", err)
	for _, c := range flood { // so that the worker does not wait for their requests
		_ = c.Close()
	}
	requireCleanShutdown(t, w)
}
