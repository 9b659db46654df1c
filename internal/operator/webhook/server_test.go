package webhook

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	goruntime "runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/operator/ca"
	"github.com/yardmaster/yardmaster/internal/pod/listener"
	"github.com/yardmaster/yardmaster/test/certtest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestOnlyTheSecretPathIsServed(t *testing.T) {
	t.Parallel()
	env := startServer(t)
	review := reviewOf(t, []byte(`{"metadata":{"name":"readers"}}`))
	for title, row := range map[string]struct {
		path string
		want int
	}{
		"the secret path":                      {"/" + segment + poolsPath, http.StatusOK},
		"the secret path, with a timeout":      {"/" + segment + poolsPath + "?timeout=5s", http.StatusOK},
		"the path without the secret":          {poolsPath, http.StatusNotFound},
		"another secret":                       {"/sekret" + poolsPath, http.StatusNotFound},
		"a prefix of the secret":               {"/secre" + poolsPath, http.StatusNotFound},
		"an empty secret":                      {"/" + poolsPath, http.StatusNotFound},
		"the secret alone":                     {"/" + segment, http.StatusNotFound},
		"an unknown webhook":                   {"/" + segment + "/validate/pods", http.StatusNotFound},
		"a path that leads to the webhook":     {"/" + segment + "/validate/.." + poolsPath, http.StatusNotFound},
		"a path with two slashes":              {"/" + segment + "/" + poolsPath, http.StatusNotFound},
		"the fixed path of an earlier version": {"/validate-yardmaster-dev-v1alpha1-workerpool", http.StatusNotFound},
	} {
		t.Run(title, func(t *testing.T) { require.Equal(t, row.want, env.post(env.newClient(), row.path, review)) })
	}
}

func TestPathsAreFixedOnlyForACertificateFromElsewhere(t *testing.T) {
	t.Parallel()
	env := startServer(t, func(o *Options, _ *limits) { _ = os.Remove(filepath.Join(o.Directory, PathFile)) })
	review := reviewOf(t, []byte(`{"metadata":{"name":"readers"}}`))
	require.Equal(t, http.StatusOK, env.post(env.newClient(), poolsPath, review))
	env.writeFile(PathFile, "one two")
	poll.Until(t, "the fixed path to be refused", func() bool {
		return env.post(env.newClient(), poolsPath, review) == http.StatusNotFound
	})
	for _, path := range []string{"/one" + poolsPath, "/two" + poolsPath} {
		require.Equal(t, http.StatusOK, env.post(env.newClient(), path, review))
	}
}

// newCA returns the files of a certificate authority that was created at that time.
func newCA(t *testing.T, created time.Time) map[string][]byte {
	t.Helper()
	certificate, key, err := ca.New(created)
	require.NoError(t, err)
	return map[string][]byte{ca.CertFile: certificate, ca.KeyFile: key, PathFile: []byte(segment)}
}

func TestFilesThatCannotServeAreRefused(t *testing.T) {
	t.Parallel()
	now := time.Now()
	certificate, key := certtest.NewCertificate(t)
	leaf, leafKey := issueCertificate(t, now)
	other := newCA(t, now)
	for title, row := range map[string]struct {
		change func(map[string][]byte)
		want   string
	}{
		"an authority and a path":        {func(map[string][]byte) {}, ""},
		"an authority without a path":    {func(f map[string][]byte) { delete(f, PathFile) }, "path is missing or empty"},
		"an authority, an empty path":    {func(f map[string][]byte) { f[PathFile] = []byte(" ") }, "path is missing or empty"},
		"the key of another authority":   {func(f map[string][]byte) { f[ca.KeyFile] = other[ca.KeyFile] }, "does not match"},
		"a key without its certificate":  {func(f map[string][]byte) { delete(f, ca.CertFile) }, "certificate authority in ca.crt"},
		"an expired authority":           {func(f map[string][]byte) { maps.Copy(f, newCA(t, now.AddDate(-11, 0, 0))) }, "authority expired at 20"},
		"a certificate that cannot sign": {func(f map[string][]byte) { f[ca.CertFile], f[ca.KeyFile] = leaf, leafKey }, "not that of a certificate"},
		"a certificate":                  {func(f map[string][]byte) { clear(f); f[CertFile], f[KeyFile] = certificate, key }, ""},
		"a certificate, an empty path":   {func(f map[string][]byte) { clear(f); f[CertFile], f[KeyFile], f[PathFile] = certificate, key, nil }, "path is missing or empty"},
		"a certificate without its key":  {func(f map[string][]byte) { clear(f); f[CertFile] = certificate }, "neither a certificate authority"},
		"nothing":                        {func(f map[string][]byte) { clear(f) }, "neither a certificate authority"},
	} {
		t.Run(title, func(t *testing.T) {
			directory, content := t.TempDir(), newCA(t, now)
			row.change(content)
			writeFiles(t, directory, content)
			_, err := (&credentialFiles{directory: directory, hosts: []string{"a.b.svc"}}).current(now)
			require.True(t, (err == nil) == (row.want == "") && strings.Contains(fmt.Sprint(err), row.want), "error %v, want %q", err, row.want)
		})
	}
}

func issueCertificate(t *testing.T, now time.Time) (certificate, key []byte) {
	t.Helper()
	directory := t.TempDir()
	writeFiles(t, directory, newCA(t, now))
	issued := require.Call((&credentialFiles{directory: directory, hosts: []string{"a.b.svc"}}).current(now)).Succeeds(t)
	pair := &issued.tls.Certificates[0]
	rawKey := require.Call(x509.MarshalPKCS8PrivateKey(pair.PrivateKey)).Succeeds(t)
	certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
	return certificate, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: rawKey})
}

func writeFiles(t *testing.T, directory string, content map[string][]byte) {
	t.Helper()
	for name, file := range content {
		require.NoError(t, os.WriteFile(filepath.Join(directory, name), file, 0o600))
	}
}

// Every five hours for eleven years, an API server that trusts the authority, and whose clock is late, accepts the certificate, until the
// authority expires. Every year, a replica has been started again.
func TestAnAuthorityIssuesValidCertificatesUntilItExpires(t *testing.T) {
	t.Parallel()
	const host = "yardmaster-webhook.yardmaster-system.svc"
	created := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	directory, content := t.TempDir(), newCA(t, created)
	writeFiles(t, directory, content)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(content[ca.CertFile])
	var files *credentialFiles
	serials := map[string]bool{}
	var used *x509.Certificate
	var usedAt time.Time
	requireAccepted := func() {
		for _, clock := range []time.Time{usedAt, usedAt.Add(-59 * time.Minute)} {
			_, err := used.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: clock})
			require.True(t, err == nil, "%s: %v", usedAt, err)
		}
	}
	for hour := 0; hour < 11*365*24; hour += 5 {
		now := created.Add(time.Duration(hour) * time.Hour)
		if hour%(365*24) == 0 {
			files = &credentialFiles{directory: directory, hosts: []string{host}}
		}
		c, err := files.current(now)
		if expired := hour >= 10*365*24; expired {
			require.ErrorContains(t, err, "expired")
			continue
		}
		require.True(t, err == nil, "%s: %v", now, err)
		// A certificate that is accepted when it is used first and last is accepted in between.
		raw := c.tls.Certificates[0].Certificate[0]
		if used != nil {
			if bytes.Equal(used.Raw, raw) {
				usedAt = now
				continue
			}
			requireAccepted()
		}
		used, usedAt = require.Call(x509.ParseCertificate(raw)).Succeeds(t), now
		serials[used.SerialNumber.String()] = true
		requireAccepted()
	}
	requireAccepted()
	require.True(t, len(serials) >= 80 && len(serials) <= 120, "%d certificates in ten years", len(serials))
}

func TestServerStartsOnceItsFilesExist(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	s := New(Options{Directory: directory})
	ended := make(chan error, 1)
	go func() { ended <- s.Start(t.Context()) }()
	require.True(t, s.StartedChecker()(nil) != nil, "the server is ready without a certificate")
	certificate, key := certtest.NewCertificate(t)
	writeFiles(t, directory, map[string][]byte{CertFile: certificate, KeyFile: key, PathFile: []byte(segment)})
	poll.Until(t, "the server to be ready", func() bool { return s.StartedChecker()(nil) == nil })
	require.True(t, len(ended) == 0, "the server ended")
}

func TestNewCertificatesAndPathsAreUsedWithoutARestart(t *testing.T) {
	t.Parallel()
	env := startServer(t)
	env.wantReviews(1)
	env.writeCertificate()
	env.writeFile(PathFile, "next "+segment)
	poll.Until(t, "the new certificate to be served", func() bool {
		status, err := env.tryPost(env.newClient(), "/next"+poolsPath, reviewOf(t, []byte(`{}`)))
		return err == nil && status == http.StatusOK
	})
	env.wantReviews(1) // with the previous path

	// An invalid certificate is not used.
	env.writeFile(CertFile, "nothing")
	time.Sleep(reloadInterval + 100*time.Millisecond)
	env.wantReviews(1)
}

func TestClientCertificateIsRequiredWhereItIsConfigured(t *testing.T) {
	t.Parallel()
	certificate, key := certtest.NewCertificate(t) // which is its own authority
	env := startServer(t, func(o *Options, _ *limits) {
		o.ClientCAFile = filepath.Join(o.Directory, "clients.crt")
		require.NoError(t, os.WriteFile(o.ClientCAFile, certificate, 0o600))
	})
	pair := func(certificate, key []byte) tls.Certificate {
		return require.Call(tls.X509KeyPair(certificate, key)).Succeeds(t)
	}
	review := reviewOf(t, []byte(`{}`))
	status, err := env.tryPost(env.newClient(), "/"+segment+poolsPath, review)
	require.True(t, err != nil, "without a certificate: %d", status)
	status, err = env.tryPost(env.newClient(pair(certtest.NewCertificate(t))), "/"+segment+poolsPath, review)
	require.True(t, err != nil, "with a certificate of another authority: %d", status)
	require.Equal(t, http.StatusOK, env.post(env.newClient(pair(certificate, key)), "/"+segment+poolsPath, review))
}

func TestHTTP2IsRefused(t *testing.T) {
	t.Parallel()
	env := startServer(t)
	config := &tls.Config{RootCAs: env.roots, NextProtos: []string{"h2"}}
	if connection, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", env.address); err == nil {
		_ = connection.Close()
		t.Error("HTTP/2 is negotiated")
	}
	client := env.newClient()
	transport, _ := client.Transport.(*http.Transport)
	transport.ForceAttemptHTTP2 = true
	require.Equal(t, http.StatusOK, env.post(client, "/"+segment+poolsPath, reviewOf(t, []byte(`{}`))))
}

func TestLongHeadersAreRefused(t *testing.T) {
	t.Parallel()
	env := startServer(t)
	response, err := env.send(env.newClient(), "/"+segment+poolsPath, http.NoBody, func(r *http.Request) {
		r.Header.Set("X-Long", strings.Repeat("a", 1<<20))
	})
	if err != nil {
		return // the server closes the connection before the client has sent everything
	}
	defer response.Body.Close()
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, response.StatusCode)
}

func TestIdlePeersDoNotExcludeTheAPIServer(t *testing.T) {
	t.Parallel()
	const connections = 20
	env := startServer(t, func(_ *Options, l *limits) {
		l.connections = listener.Limits{Total: connections, Unproven: connections}
	})
	used := env.newClient()
	send := func() error {
		_, err := env.tryPost(used, "/"+segment+poolsPath, reviewOf(t, []byte(`{}`)))
		return err
	}
	require.NoError(t, send())
	idle := make([]net.Conn, 3*connections)
	for i := range idle {
		idle[i] = dial(t, env.address)
	}
	// The oldest are closed for newer ones. The API server's connection is not among them.
	for _, c := range idle[:connections] {
		require.NoError(t, readUntilClosed(c))
	}
	require.NoError(t, send()) // the connection in use was not closed
	env.wantReviews(5)
}

// The API server repeats no review that was on its way when its connection was closed.
func TestNoReviewIsLostWhenTheServerStops(t *testing.T) {
	t.Parallel()
	var err error
	// On a busy machine, a client can be without a processor for longer than the server takes to leave.
	for leave := defaultLimits.leave; leave < testTimeout; leave *= 2 {
		if err = stopDuringReviews(t, leave); err == nil {
			return
		}
	}
	t.Error(err)
}

func stopDuringReviews(t *testing.T, leave time.Duration) error {
	t.Helper()
	env := startServer(t, func(_ *Options, l *limits) { l.leave = leave })
	const number = 50
	var started sync.WaitGroup
	failures := make(chan error, number)
	for range number {
		client := env.newClient()
		started.Add(1)
		go func() {
			closing, err := env.sendReview(client)
			started.Done()
			for err == nil && !closing {
				closing, err = env.sendReview(client)
			}
			failures <- err
		}()
	}
	started.Wait()
	env.stop()
	var err error
	for range number {
		err = errors.Join(err, <-failures)
	}
	return err
}

// testServer is a server that listens on this machine.
type testServer struct {
	*testing.T
	*Server
	address, directory string
	roots              *x509.CertPool
	stop               context.CancelFunc
}

// sendReview reports whether the client has to send its next review over another connection.
func (env *testServer) sendReview(client *http.Client) (closing bool, err error) {
	response, err := env.send(client, "/"+segment+poolsPath, bytes.NewReader(reviewOf(env.T, []byte(`{}`))), func(*http.Request) {})
	if err != nil {
		return false, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return response.Close, errors.Join(err, response.Body.Close())
}

func TestSlowPeersAreDisconnected(t *testing.T) {
	env := startServer(t, func(_ *Options, l *limits) {
		l.header, l.body, l.review = 200*time.Millisecond, 400*time.Millisecond, 400*time.Millisecond
	})
	for title, sent := range map[string]string{
		"a peer that sends nothing":         "",
		"a peer that sends half a header":   "POST /" + segment + poolsPath + " HTTP/1.1\r\nHost: x\r\n",
		"a peer that sends half a body":     "POST /" + segment + poolsPath + " HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
		"a peer that sends half of another": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			var c net.Conn
			poll.Until(t, "a handshake in time", func() bool {
				c = tls.Client(dial(t, env.address), &tls.Config{RootCAs: env.roots, ServerName: "127.0.0.1"})
				_, err := io.WriteString(c, sent)
				return err == nil
			})
			require.NoError(t, readUntilClosed(c))
		})
	}
	t.Run("a peer that does not finish the handshake", func(t *testing.T) {
		t.Parallel()
		c := dial(t, env.address)
		require.Call(c.Write([]byte{22, 3, 1})).Succeeds(t)
		require.NoError(t, readUntilClosed(c))
	})
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c := require.Call((&net.Dialer{}).DialContext(t.Context(), "tcp", address)).Succeeds(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// readUntilClosed returns an error unless the server closes the connection.
func readUntilClosed(c net.Conn) error {
	if err := c.SetReadDeadline(time.Now().Add(testTimeout)); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, bufio.NewReader(c))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("the server kept the connection")
	}
	return nil
}

// poolsPath is the path of the webhook in the tests, after the secret segment.
const poolsPath = "/validate/workerpools.yardmaster.dev"

const segment = "secret"

// testTimeout bounds what takes milliseconds on an idle machine.
const testTimeout = 5 * time.Minute

// startServer starts a server, by default with a secret path and a validator of WorkerPools.
func startServer(t *testing.T, change ...func(*Options, *limits)) *testServer {
	t.Helper()
	env := &testServer{T: t, directory: t.TempDir()}
	env.writeCertificate()
	env.writeFile(PathFile, segment)
	options, limits := Options{Directory: env.directory}, defaultLimits
	limits.leave, limits.header, limits.body, limits.review = 0, testTimeout, testTimeout, testTimeout
	for _, c := range change {
		c(&options, &limits)
	}
	env.Server = New(options)
	env.limits = limits
	env.Register(poolsPath, admission.WithValidator(newScheme(t), acceptAll{}))
	listener := require.Call((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")).Succeeds(t)
	env.address = listener.Addr().String()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- env.serve(ctx, listener) }()
	env.stop = stop
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	return env
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	return scheme
}

// acceptAll is a validator that accepts each WorkerPool, after it was decoded.
type acceptAll struct{}

func (acceptAll) ValidateCreate(context.Context, *v1alpha1.WorkerPool) (admission.Warnings, error) {
	return nil, nil
}

func (acceptAll) ValidateUpdate(context.Context, *v1alpha1.WorkerPool, *v1alpha1.WorkerPool) (admission.Warnings, error) {
	return nil, nil
}

func (acceptAll) ValidateDelete(context.Context, *v1alpha1.WorkerPool) (admission.Warnings, error) {
	return nil, nil
}

func (env *testServer) writeFile(name, content string) {
	env.Helper()
	require.NoError(env, os.WriteFile(filepath.Join(env.directory, name), []byte(content), 0o600))
}

// writeCertificate writes a new certificate, which is the only one that new clients trust.
func (env *testServer) writeCertificate() {
	env.Helper()
	certificate, key := certtest.NewCertificate(env.T)
	writeFiles(env.T, env.directory, map[string][]byte{CertFile: certificate, KeyFile: key})
	env.roots = x509.NewCertPool()
	env.roots.AppendCertsFromPEM(certificate)
}

func (env *testServer) url(path string) string { return "https://" + env.address + path }

// newClient returns a client with connections of its own.
func (env *testServer) newClient(certificates ...tls.Certificate) *http.Client {
	return env.newClientAt("127.0.0.1", certificates...)
}

// newClientAt returns a client at another loopback address, as in another Pod.
func (env *testServer) newClientAt(host string, certificates ...tls.Certificate) *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	transport := &http.Transport{DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{RootCAs: env.roots, Certificates: certificates}}
	env.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: testTimeout}
}

func (env *testServer) post(client *http.Client, path string, body []byte) int {
	env.Helper()
	return require.Call(env.tryPost(client, path, body)).Succeeds(env)
}

func (env *testServer) send(client *http.Client, path string, body io.Reader, change func(*http.Request)) (*http.Response, error) {
	request, err := http.NewRequestWithContext(env.Context(), http.MethodPost, env.url(path), body)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	change(request)
	return client.Do(request)
}

func (env *testServer) tryPost(client *http.Client, path string, body []byte) (status int, err error) {
	response, err := env.send(client, path, bytes.NewReader(body), func(*http.Request) {})
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return response.StatusCode, nil
	}
	review := &admissionv1.AdmissionReview{}
	if err := json.NewDecoder(response.Body).Decode(review); err != nil {
		return 0, err
	}
	return int(review.Response.Result.Code), nil
}

// wantReviews sends valid reviews, each of which must succeed.
func (env *testServer) wantReviews(n int) {
	env.Helper()
	_ = env.sendReviews(n)
}

// sendReviews sends valid reviews, each of which must succeed. It returns an error unless most of them do so within the
// timeout of a webhook: on a busy machine, they may have to wait for a processor.
func (env *testServer) sendReviews(n int) error {
	env.Helper()
	client := env.newClient()
	var late int
	for range n {
		start := time.Now()
		require.Equal(env, http.StatusOK, env.post(client, "/"+segment+poolsPath, reviewOf(env.T, []byte(`{"metadata":{"name":"readers"}}`))))
		if time.Since(start) > 5*time.Second {
			late++
		}
	}
	if late > n/2 {
		return fmt.Errorf("%d of %d valid reviews took more than 5 s", late, n)
	}
	return nil
}

func reviewOf(t *testing.T, object []byte) []byte {
	t.Helper()
	review := &admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		UID: "1", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: object},
	}}
	review.APIVersion, review.Kind = "admission.k8s.io/v1", "AdmissionReview"
	return require.Call(json.Marshal(review)).Succeeds(t)
}

const mebibyte = 1 << 20

// An operator without bounds would read and decode all of these bodies at the same time.
func TestFloodOfLargeBodiesDoesNotOccupyMemory(t *testing.T) {
	const peers, bodyBytes = 60, 6_600_000
	for title, row := range map[string]struct {
		path   string
		length int64
		want   int
	}{
		"without the secret path":  {poolsPath, bodyBytes, http.StatusNotFound},
		"with the secret path":     {"/" + segment + poolsPath, bodyBytes, http.StatusRequestEntityTooLarge},
		"without a Content-Length": {"/" + segment + poolsPath, -1, http.StatusLengthRequired},
	} {
		t.Run(title, func(t *testing.T) {
			require.NoError(t, poll.UntilNil(t.Context(), func() error {
				env := startServer(t)
				peak := measurePeak(t)
				var flood sync.WaitGroup
				for range peers {
					client := env.newClientAt("127.0.0.2")
					flood.Go(func() {
						status, err := sendZeros(env, client, row.path, row.length, bodyBytes)
						if err == nil && status != row.want { // the server may close the connection first
							t.Errorf("status %d, want %d", status, row.want)
						}
					})
				}
				err := env.sendReviews(20)
				flood.Wait()
				require.True(t, peak() <= 96*mebibyte, "%d MiB in use, including the clients", peak()/mebibyte)
				return err
			}))
		})
	}
}

// A timeout is no mistake of the client: the operator may have been busy until it read the review.
func TestReviewThatDoesNotArriveInTimeIsATimeout(t *testing.T) {
	env := startServer(t)
	body, end := io.Pipe()
	defer end.Close()
	response, err := env.send(env.newClient(), "/"+segment+poolsPath+"?timeout=100ms", body, func(r *http.Request) { r.ContentLength = 100 })
	require.NoError(t, err)
	_ = response.Body.Close()
	require.Equal(t, http.StatusRequestTimeout, response.StatusCode)
}

func sendZeros(env *testServer, client *http.Client, path string, length, size int64) (status int, err error) {
	response, err := env.send(client, path, io.NopCloser(io.LimitReader(zeros{}, size)), func(r *http.Request) { r.ContentLength = length })
	if err != nil {
		return 0, err
	}
	_ = response.Body.Close()
	return response.StatusCode, nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// expensiveShapes are the parts of a WorkerPool that need the most memory for their JSON.
var expensiveShapes = map[string]struct{ before, item, after string }{
	"containers":          {`{"spec":{"template":{"spec":{"initContainers":[`, `{}`, `]}}}}`},
	"ephemeral":           {`{"spec":{"template":{"spec":{"ephemeralContainers":[`, `{}`, `]}}}}`},
	"volumes":             {`{"spec":{"template":{"spec":{"volumes":[`, `{}`, `]}}}}`},
	"variables":           {`{"spec":{"template":{"spec":{"initContainers":[{"env":[`, `{}`, `]}]}}}}`},
	"arguments":           {`{"spec":{"template":{"spec":{"initContainers":[{"args":[`, `""`, `]}]}}}}`},
	"managed fields":      {`{"metadata":{"managedFields":[`, `{}`, `]}}`},
	"affinities":          {`{"spec":{"template":{"spec":{"affinity":{"podAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[`, `{}`, `]}}}}}}`},
	"unknown fields":      {`{"spec":{"unknown":[`, `{}`, `]}}`},
	"nested unknown ones": {`{"spec":{"unknown":[`, `[[[[]]]]`, `]}}`},
}

func repeatItem(t *testing.T, shape struct{ before, item, after string }, memory int64) []byte {
	t.Helper()
	perItem := memoryToDecode([]byte(shape.item + ","))
	n := int((memory - memoryToDecode([]byte(shape.before+shape.after)) - 4096) / perItem)
	n = min(n, (maxReviewBytes-1024)/(len(shape.item)+1))
	items := strings.Repeat(shape.item+",", n) + shape.item
	return []byte(shape.before + items + shape.after)
}

func TestDecodingAReviewNeedsNoMoreMemoryThanReserved(t *testing.T) {
	for title, shape := range expensiveShapes {
		t.Run(title, func(t *testing.T) {
			env := startServer(t)
			review := reviewOf(t, repeatItem(t, shape, maxReviewMemory*9/10))
			reserved := memoryToDecode(review)
			client := env.newClient()
			peak := measurePeak(t)
			require.Equal(t, http.StatusOK, env.post(client, "/"+segment+poolsPath, review))
			used := int64(peak())
			t.Logf("%.1f MiB used, %.1f MiB reserved for %.1f MiB", float64(used)/mebibyte, float64(reserved)/mebibyte, float64(len(review))/mebibyte)
			require.True(t, used <= reserved, "%d bytes used, %d reserved", used, reserved)
		})
	}
}

func TestReviewsThatNeedMoreMemoryThanThereIsAreRefused(t *testing.T) {
	env := startServer(t)
	review := reviewOf(t, []byte(`{"spec":{"unknown":[`+strings.Repeat(`{},`, maxReviewMemory/(3<<10))+`{}]}}`))
	require.Equal(t, http.StatusRequestEntityTooLarge, env.post(env.newClient(), "/"+segment+poolsPath, review))
}

// One tenant creates the most expensive objects that the API server accepts, another small ones.
func TestExpensiveReviewsDelayNoSmallOnes(t *testing.T) {
	require.NoError(t, poll.UntilNil(t.Context(), func() error { return sendSmallAmongExpensive(t) }))
}

// sendSmallAmongExpensive returns an error if the small reviews are late.
func sendSmallAmongExpensive(t *testing.T) error {
	t.Helper()
	env := startServer(t)
	expensive := reviewOf(t, repeatItem(t, expensiveShapes["containers"], maxReviewMemory*3/4))
	peak := measurePeak(t)
	var flood sync.WaitGroup
	statuses := make(chan string, 50)
	for number := range cap(statuses) {
		client, timeout := env.newClient(), "5s"
		if number == 0 {
			timeout = testTimeout.String() // on a busy machine, too, this one succeeds
		}
		flood.Go(func() {
			status, err := env.tryPost(client, "/"+segment+poolsPath+"?timeout="+timeout, expensive)
			statuses <- fmt.Sprint(status, err)
		})
	}
	err := env.sendReviews(20)
	flood.Wait()
	close(statuses)
	count := map[string]int{}
	for status := range statuses {
		count[status]++
	}
	t.Logf("%v, %d MiB in use", count, peak()/mebibyte)
	isRight := count["200 <nil>"] > 0 && count["200 <nil>"]+count["503 <nil>"]+count["408 <nil>"] == cap(statuses)
	require.True(t, isRight, "the expensive reviews returned %v", count)
	require.True(t, peak() <= 170*mebibyte, "%d MiB in use, including the clients", peak()/mebibyte)
	return err
}

func TestReviewWaitsForMemoryAtMostForItsTimeout(t *testing.T) {
	env := startServer(t)
	release := require.Call(env.decoding.acquire(t.Context(), maxReviewMemory)).Succeeds(t)
	large := reviewOf(t, repeatItem(t, expensiveShapes["containers"], 2*smallReviewMemory))
	var status int
	poll.Until(t, "a review to arrive within its timeout", func() bool {
		status = env.post(env.newClient(), "/"+segment+poolsPath+"?timeout=100ms", large)
		return status != http.StatusRequestTimeout
	})
	require.Equal(t, http.StatusServiceUnavailable, status)
	release()
	require.Equal(t, http.StatusOK, env.post(env.newClient(), "/"+segment+poolsPath, large))
}

// measurePeak returns a function that returns the largest increase of the heap since now.
func measurePeak(t *testing.T) func() uint64 {
	t.Helper()
	goruntime.GC()
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	baseline := sample[0].Value.Uint64()
	var mu sync.Mutex
	peak := uint64(0)
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	measure := func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		metrics.Read(sample)
		peak = max(peak, sample[0].Value.Uint64()-min(baseline, sample[0].Value.Uint64()))
		return peak
	}
	go func() {
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				measure()
			}
		}
	}()
	return measure
}
