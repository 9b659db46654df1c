// Package integration tests the operator against the real API server of KUBECONFIG. The operator and its webhook run in the process of the test.
package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/internal/broker/bounded"
	"github.com/yardmaster/yardmaster/internal/operator"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testenv"
)

const repositoryRoot = "../.."

// The cluster, and its configuration.
var (
	cluster *testenv.Cluster
	config  *rest.Config
)

func TestMain(m *testing.M) {
	testenv.Main(m, "make test-integration", installAndRunOperator)
}

func installAndRunOperator(ctx context.Context, c *testenv.Cluster) (end func() error, err error) {
	// A field that does not exist is an error, or a test could change nothing by the name of a field that was renamed.
	strict, err := client.NewWithWatch(c.Config, client.Options{Scheme: c.Scheme(), FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		return nil, err
	}
	c.WithWatch = strict
	cluster, config = c, c.Config
	log, err := os.Create(testenv.Artifact("operator.log"))
	if err != nil {
		return nil, err
	}
	ctrl.SetLogger(zap.New(zap.WriteTo(log)))
	if err := cluster.InstallCRDs(ctx); err != nil {
		return nil, fmt.Errorf("installing the CRDs: %w", err)
	}
	if webhooks, err = cluster.InstallWebhooks(ctx); err != nil {
		return nil, err
	}
	end = func() error {
		ctx := context.WithoutCancel(ctx)
		problem := webhooks.Remove(ctx)
		for _, object := range admissionPolicies.installed {
			problem = errors.Join(problem, client.IgnoreNotFound(cluster.Delete(ctx, object)))
		}
		return problem
	}
	if err := errors.Join(createSessionPolicy(ctx), startOperator(ctx)); err != nil {
		return nil, errors.Join(err, end())
	}
	return end, nil
}

var webhooks *testenv.Webhooks

const operatorKeySecret = "yardmaster-worker-admin"

func startOperator(ctx context.Context) error {
	key := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: operatorKeySecret}}
	if err := client.IgnoreAlreadyExists(cluster.Create(ctx, key)); err != nil {
		return err
	}
	mgr, err := operator.New(config, operator.Options{
		Controllers:   controllers(),
		Concurrency:   10,
		QueueSweep:    2 * time.Second,
		BrokerNetwork: bounded.Options{AllowLocal: true},
		// The key of this Secret signs the tokens of sessions for egress proxies, whose Pods the nodes simulate.
		OperatorNamespace: metav1.NamespaceDefault, WorkerAdminSecret: operatorKeySecret, WorkerImage: "yardmaster:test",
		SessionPolicies: []string{sessionPolicy},
		KubeAPIQPS:      -1,
		HealthAddress:   "0",
		Metrics:         operator.MetricsOptions{Address: "0"},
		Webhook:         operator.WebhookOptions{Enabled: true, Mutating: true, Port: webhooks.LocalServingPort, CertDir: webhooks.LocalServingCertDir},
	})
	if err != nil {
		return err
	}
	go func() {
		if err := mgr.Start(ctx); err != nil {
			panic(err)
		}
	}()
	return poll.UntilNil(ctx, func() error { return mgr.GetWebhookServer().StartedChecker()(nil) })
}

// controllers returns the controllers that run during all tests. That of WorkerPools does not: each
// test of a pool runs its own, whose requests it observes. The webhook of WorkerPools is used.
func controllers() []operator.Controller {
	all := operator.AllControllers()
	for i := range all {
		if all[i].Name == "workerpool" {
			all[i].Setup = func(ctrl.Manager, operator.Options) error { return nil }
		}
	}
	return all
}

func readYAML(path string, into any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return yaml.Unmarshal(raw, into)
}

func namespace(t *testing.T) string { return newNamespace(t, nil) }

func namespaceWithoutWebhook(t *testing.T) string {
	t.Helper()
	return newNamespace(t, map[string]string{testenv.WebhookLabel: "off"})
}

func newNamespace(t *testing.T, labels map[string]string) string {
	t.Helper()
	return cluster.NewNamespace(t, "test-", labels)
}

// mustCreate creates an object, and deletes it at the end of the test if it has no namespace.
func mustCreate(t *testing.T, object client.Object) {
	t.Helper()
	require.NoError(t, cluster.Create(t.Context(), object))
	if object.GetNamespace() == "" {
		t.Cleanup(func() { require.NoError(t, client.IgnoreNotFound(cluster.Delete(context.Background(), object))) })
	}
}

func mustDelete(t *testing.T, object client.Object, options ...client.DeleteOption) {
	t.Helper()
	require.NoError(t, cluster.Delete(t.Context(), object, options...))
}

func mustGet[T client.Object](t *testing.T, key client.ObjectKey, object T) T {
	t.Helper()
	require.NoError(t, cluster.Get(t.Context(), key, object))
	return object
}

func mustPatch(t *testing.T, object client.Object, patch client.Patch, options ...client.PatchOption) {
	t.Helper()
	require.NoError(t, cluster.Patch(t.Context(), object, patch, options...))
}

// busyMachine is how much longer than promised something may take in tests, because their machine may be busy.
const busyMachine = 4

// assertWithin checks that an event happened within the time that is promised for it.
func assertWithin(t *testing.T, what string, promised time.Duration, since time.Time) {
	t.Helper()
	took := time.Since(since)
	t.Logf("%s after %s", what, took.Round(time.Millisecond))
	most := busyMachine * promised
	require.True(t, took <= most, "%s after %s, want %s, or on a busy machine at most %s", what, took, promised, most)
}

const mergePatch = types.MergePatchType

// The tests also run on the oldest release of Kubernetes that docs/support.md supports, which lacks one kind.

// hasMutatingAdmissionPolicies reports whether the API server has the kind in the component admission-policy.
func hasMutatingAdmissionPolicies(t *testing.T) bool {
	t.Helper()
	_, err := cluster.RESTMapper().RESTMapping(schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicy"}, "v1")
	if err != nil && !meta.IsNoMatchError(err) {
		t.Fatal(err)
	}
	return err == nil
}

// serverVersion returns the release of Kubernetes.
var serverVersion = sync.OnceValue(func() string {
	version, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerVersion()
	if err != nil {
		panic(err)
	}
	return version.GitVersion
})

// newestRelease is the release of Kubernetes whose messages the tests compare word by word.
const newestRelease = "v1.36."

// olderMessages are the parts of messages that older releases of Kubernetes write differently, and what they have in common.
var olderMessages = []struct {
	part   *regexp.Regexp
	common string
}{
	// The value, its type, or nothing.
	{regexp.MustCompile(`Invalid value: (?:"(?:[^"\\]|\\.)*"|[^\s":]+): `), "Invalid value: "},
	{regexp.MustCompile(`Duplicate value: map\[string\]interface \{\}`), "Duplicate value: "},
	{regexp.MustCompile(`must be of type int64: "float64", <nil>: .*|must be of type integer: "number"`), "must be of type integer"},
}

// comparableMessage returns what all supported releases of Kubernetes have in common in their message about an invalid object. On
// the newest release, it returns the whole message.
func comparableMessage(t *testing.T, message string) string {
	t.Helper()
	if strings.HasPrefix(serverVersion(), newestRelease) {
		return message
	}
	for _, older := range olderMessages {
		message = older.part.ReplaceAllString(message, older.common)
	}
	return message
}
