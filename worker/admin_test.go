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

// startProtectedWorker runs the Pod team/mail-0, and serves its admin API.
func startProtectedWorker(t *testing.T, keyFile string) (w *Worker, url string) {
	t.Helper()
	env := newTestEnv(t)
	w = env.newWorker(Options{Config: env.config(), Namespace: "team", Pod: "mail-0", AdminKeyFile: keyFile}, blockingHandler(nil))
	server := httptest.NewServer(w.AdminHandler())
	t.Cleanup(server.Close)
	return w, server.URL
}

func signedToken(t *testing.T, keys *adminauth.Keys, worker, action string, at time.Time) string {
	t.Helper()
	token, err := keys.Sign(adminauth.Request{Worker: worker, Action: action}, at)
	require.NoError(t, err)
	return token
}

// adminRequest sends a request to the admin API and returns the status of the response.
func adminRequest(t *testing.T, method, url string, header http.Header) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	require.NoError(t, err)
	request.Header = header
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	_ = response.Body.Close()
	return response.StatusCode
}

func TestRequestsThatChangeAWorkerNeedATokenOfTheOperator(t *testing.T) {
	t.Parallel()
	keys, keyFile := operatorKey(t)
	others, _ := operatorKey(t)
	w, url := startProtectedWorker(t, keyFile)
	now := time.Now()
	for title, row := range map[string]struct {
		path, authorization string
		want                int
	}{
		"no token":                       {"/drain", "", http.StatusForbidden},
		"no Bearer token":                {"/drain", "Basic eDp4", http.StatusForbidden},
		"a token of another operator":    {"/drain", "Bearer " + signedToken(t, others, "team/mail-0", "drain", now), http.StatusForbidden},
		"a token for another Pod":        {"/drain", "Bearer " + signedToken(t, keys, "team/mail-1", "drain", now), http.StatusForbidden},
		"a token for another action":     {"/drain", "Bearer " + signedToken(t, keys, "team/mail-0", "resume", now), http.StatusForbidden},
		"an expired token":               {"/drain", "Bearer " + signedToken(t, keys, "team/mail-0", "drain", now.Add(-time.Hour)), http.StatusForbidden},
		"resume without a token":         {"/resume", "", http.StatusForbidden},
		"a token that permits to resume": {"/resume", "Bearer " + signedToken(t, keys, "team/mail-0", "resume", now), http.StatusOK},
	} {
		got := adminRequest(t, http.MethodPost, url+row.path, http.Header{"Authorization": {row.authorization}})
		require.True(t, got == row.want, "%s: POST %s returned %d, want %d", title, row.path, got, row.want)
	}
	require.True(t, w.Stats().State == StateRunning, "a refused request drained the worker")
	valid := http.Header{"Authorization": {"Bearer " + signedToken(t, keys, "team/mail-0", "drain", now)}}
	got := adminRequest(t, http.MethodPost, url+"/drain", valid)
	require.True(t, got == http.StatusAccepted && w.Stats().State != StateRunning, "POST /drain with a valid token returned %d", got)
}

func TestANewKeyOfTheOperatorAppliesWithoutARestart(t *testing.T) {
	t.Parallel()
	_, keyFile := operatorKey(t)
	renewed, _ := operatorKey(t)
	_, url := startProtectedWorker(t, keyFile)
	drain := func() int {
		token := signedToken(t, renewed, "team/mail-0", adminauth.ActionDrain, time.Now())
		return adminRequest(t, http.MethodPost, url+"/drain", http.Header{"Authorization": {"Bearer " + token}})
	}
	require.Equal(t, http.StatusForbidden, drain())
	writePublicKey(t, keyFile, renewed)
	require.Equal(t, http.StatusAccepted, drain())
	require.NoError(t, os.WriteFile(keyFile, nil, 0o600))
	require.Equal(t, http.StatusForbidden, drain())
}

func TestWorkersAreDrainedWithoutATokenIfTheirOperatorPublishesNoKey(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	w := env.newWorker(Options{Config: env.config(), AdminKeyFile: filepath.Join(t.TempDir(), "operator.pem")}, blockingHandler(nil))
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/drain", http.NoBody)
	response := httptest.NewRecorder()
	w.AdminHandler().ServeHTTP(response, request)
	require.True(t, response.Code == http.StatusAccepted, "POST /drain returned %d, want 202", response.Code)
}

func TestAWorkerWithoutAnOperatorAcceptsRequestsFromItsOwnHostOnly(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	handler := env.newWorker(Options{Config: env.config()}, blockingHandler(nil)).AdminHandler()
	for address, want := range map[string]int{
		"127.0.0.1:1": http.StatusAccepted, "[::1]:1": http.StatusAccepted,
		"10.0.0.1:1": http.StatusForbidden, "[fd00::1]:1": http.StatusForbidden, "": http.StatusForbidden,
	} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/drain", http.NoBody)
		request.RemoteAddr = address
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, request)
		require.True(t, response.Code == want, "POST /drain from %q returned %d, want %d", address, response.Code, want)
	}
}

func TestThePreStopHookNeedsTheSecretOfTheRevision(t *testing.T) {
	t.Parallel()
	env := newTestEnv(t)
	w := env.newWorker(Options{Config: env.config(), PreStopSecret: "s3cret"}, blockingHandler(nil))
	server := httptest.NewServer(w.AdminHandler())
	defer server.Close()
	for secret, want := range map[string]int{"": http.StatusNotFound, "guess": http.StatusNotFound} {
		got := adminRequest(t, http.MethodGet, server.URL+"/prestop", http.Header{adminauth.PreStopHeader: {secret}})
		require.True(t, got == want, "GET /prestop with secret %q returned %d, want %d", secret, got, want)
	}
	require.True(t, w.Stats().State == StateRunning && w.shutdown.Err() == nil, "a request without the secret ends the worker")
	require.Equal(t, http.StatusOK, adminRequest(t, http.MethodGet, server.URL+"/prestop", http.Header{adminauth.PreStopHeader: {"s3cret"}}))
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
		got := adminRequest(t, http.MethodGet, "http://"+url, nil)
		require.True(t, got == want, "GET %s returned %d, want %d", url, got, want)
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
		if err != nil {
			t.Fatalf("the liveness probe fails: %v", err)
		}
		_ = response.Body.Close()
	}
	_, err := flood[0].Read(make([]byte, 1))
	require.True(t, err != nil && !strings.Contains(err.Error(), "timeout"), "the oldest connection of the flood is open: %v", err)
	for _, c := range flood { // so that the worker does not wait for their requests
		_ = c.Close()
	}
	requireCleanShutdown(t, w)
}
