package integration

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/gateway"
	"github.com/yardmaster/yardmaster/test/background"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// gatewayAccount is the ServiceAccount of the gateway.
const gatewayAccount = "yardmaster-gateway"

// gatewayEnv is a gateway with its own permissions, that serves one namespace with a NATS server.
type gatewayEnv struct {
	*queueEnv

	deployment *deployment
	url, ca    string
}

func newGatewayEnv(t *testing.T) *gatewayEnv {
	t.Helper()
	d := installPermissions(t, "queue", false)
	e := &gatewayEnv{queueEnv: &queueEnv{t: t, ns: d.watched, Server: natstest.Start(t)}, deployment: d}
	t.Cleanup(e.abandonQueues)
	e.createSecret("yardmaster-broker", "url", "nats://"+e.Address())
	e.createQueueOn("broker: {engine: NATS, urlSecretRef: {name: yardmaster-broker}}", "orders", "")
	e.waitUntilReady("orders")
	e.createAccount(d.operator, gatewayAccount)
	as := rest.AnonymousClientConfig(config)
	as.BearerToken = e.token(d.operator, gatewayAccount)
	e.start(as)
	return e
}

func (e *gatewayEnv) createAccount(ns, name string) {
	e.t.Helper()
	mustCreate(e.t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
}

// token returns a token of a ServiceAccount for audiences; none is the API server.
func (e *gatewayEnv) token(ns, name string, audiences ...string) string {
	e.t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	require.NoError(e.t, cluster.SubResource("token").Create(e.t.Context(), account, request))
	return request.Status.Token
}

// start runs the program with its flags.
func (e *gatewayEnv) start(as *rest.Config) {
	e.t.Helper()
	directory := e.t.TempDir()
	certificate, key, err := certutil.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil) // curl needs a subject
	require.NoError(e.t, err)
	for name, content := range map[string][]byte{"tls.crt": certificate, "tls.key": key} {
		require.NoError(e.t, os.WriteFile(filepath.Join(directory, name), content, 0o600))
	}
	options, err := gateway.ParseFlags([]string{
		"--bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0",
		"--certificate-dir=" + directory, "--operator-namespace=" + e.deployment.operator, "--allow-local-brokers",
	}, nil, io.Discard)
	require.NoError(e.t, err)
	log, err := os.Create(testenv.Artifact("gateway-" + e.ns + ".log"))
	require.NoError(e.t, err)
	background.Run(e.t, func(ctx context.Context) error {
		return gateway.Run(ctx, as, options, slog.New(slog.NewTextHandler(log, nil)))
	})
	e.ca = filepath.Join(directory, "tls.crt")
	poll.Until(e.t, "the gateway to log the address of its API", func() bool {
		text, err := os.ReadFile(log.Name())
		require.NoError(e.t, err)
		address := regexp.MustCompile(`msg=Started address=(\S+)`).FindSubmatch(text)
		if address != nil {
			e.url = "https://" + string(address[1])
		}
		return address != nil
	})
}

// answer is what curl printed.
type answer struct {
	ID        string
	Duplicate bool
	Reason    string
	Message   string
}

// send runs the program with curl from the examples. It returns whether curl succeeded.
func (e *gatewayEnv) send(token, queue string, arguments ...string) (answer, bool) {
	e.t.Helper()
	file := filepath.Join(e.t.TempDir(), "token")
	require.NoError(e.t, os.WriteFile(file, []byte(token), 0o600))
	arguments = append([]string{e.url, queue, `{"id": "7"}`}, arguments...)
	command := exec.CommandContext(e.t.Context(), filepath.Join(repositoryRoot, "examples", "producer", "enqueue.sh"), arguments...)
	command.Env = append(os.Environ(), "TOKEN_FILE="+file, "CA_FILE="+e.ca, "no_proxy=127.0.0.1")
	output, err := command.Output()
	var a answer
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		e.t.Fatal(err)
	}
	if jsonErr := json.Unmarshal(output, &a); jsonErr != nil {
		e.t.Fatalf("%s: %v", output, err)
	}
	return a, err == nil
}

func TestTheGatewayRefusesThoseWhoMayNot(t *testing.T) {
	t.Parallel()
	e := newGatewayEnv(t)
	e.createAccount(e.ns, "stranger")
	stranger := e.token(e.ns, "stranger", gateway.DefaultAudience)
	for title, row := range map[string]struct {
		token, queue, reason string
	}{
		"no permission":                      {stranger, "orders", "Forbidden"},
		"no permission, another namespace":   {stranger, e.deployment.operator + "/orders", "Forbidden"},
		"a token for the API server":         {e.token(e.ns, "stranger"), "orders", "Unauthenticated"},
		"a token for another service":        {e.token(e.ns, "stranger", "vault"), "orders", "Unauthenticated"},
		"a changed token":                    {stranger[:len(stranger)-4] + "AAAA", "orders", "Unauthenticated"},
		"a namespace that it does not serve": {e.permit("elsewhere", e.deployment.reported), "orders", "NamespaceNotServed"},
	} {
		if got, sent := e.send(row.token, row.queue, "--", "--retry", "0"); sent || got.Reason != row.reason {
			t.Errorf("%s: %+v, want %s", title, got, row.reason)
		}
	}

	// A Secret that the gateway may not read. The operator may.
	e.createSecret("private", "url", "nats://"+e.Address())
	e.createQueueOn("broker: {engine: NATS, urlSecretRef: {name: private}}", "hidden", "")
	e.waitUntilReady("hidden")
	got, sent := e.send(e.permit("insider", e.ns), "hidden", "--", "--retry", "0")
	require.True(t, !sent && strings.Contains(got.Message, `no permission to read Secret "private"`), "a Secret that is not in its Role: %+v", got)
	require.True(t, len(e.messagesOf("orders")) == 0 && len(e.messagesOf("hidden")) == 0, "a job was stored")
}

// permit creates a ServiceAccount that may send jobs to the Queues of its namespace, and returns its token.
func (e *gatewayEnv) permit(name, ns string) string {
	e.t.Helper()
	e.createAccount(ns, name)
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"yardmaster.dev"}, Resources: []string{"queues/jobs"}, Verbs: []string{"create"}, ResourceNames: []string{"orders", "hidden"},
	}}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: name}},
	}
	for _, object := range []client.Object{role, binding} {
		mustCreate(e.t, object)
	}
	e.waitForAccess(ns, name)
	return e.token(ns, name, gateway.DefaultAudience)
}

// waitForAccess waits until the API server knows the Role.
func (e *gatewayEnv) waitForAccess(ns, name string) {
	e.t.Helper()
	d := *e.deployment
	d.operator, d.serviceAccount = ns, name
	d.wantPermissions(e.t, ns, []string{"create queues.yardmaster.dev/jobs orders", "create queues.yardmaster.dev/jobs hidden"})
}
