package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/certtest"
	"github.com/yardmaster/yardmaster/test/require"
)

// poolsPath is the path of the webhook in the tests, after the secret segment.
const poolsPath = "/validate/workerpools.yardmaster.dev"

const segment = "secret"

// testTimeout bounds what takes milliseconds on an idle machine.
const testTimeout = 5 * time.Minute

// testServer is a server that listens on this machine.
type testServer struct {
	*testing.T
	*Server
	address, directory string
	roots              *x509.CertPool
	stop               context.CancelFunc
}

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
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
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
	status, err := env.tryPost(client, path, body)
	require.NoError(env, err)
	return status
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
	raw, err := json.Marshal(review)
	require.NoError(t, err)
	return raw
}
