// Package integration tests the operator against the real API server of KUBECONFIG. The operator
// and its webhook run in the process of the test.
package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/internal/broker/bounded"
	"github.com/yardmaster/yardmaster/internal/operator"
	"github.com/yardmaster/yardmaster/internal/operator/webhook"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// repositoryRoot is the path of the repository's root.
const repositoryRoot = "../.."

// The cluster, and its configuration.
var (
	cluster *testenv.Cluster
	config  *rest.Config
)

func TestMain(m *testing.M) {
	testenv.Main(m, "make test-integration", installAndRunOperator)
}

// installAndRunOperator installs the CRDs and runs the operator. Its webhook is registered by address, as the API server
// cannot reach it through a Service.
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
	webhooks := &envtest.WebhookInstallOptions{Paths: []string{filepath.Join(repositoryRoot, "config", "webhook", "webhooks.yaml")}}
	if err := webhooks.Install(config); err != nil {
		return nil, fmt.Errorf("installing the webhook: %w", err)
	}
	webhookAddress = fmt.Sprintf("https://%s:%d", webhooks.LocalServingHost, webhooks.LocalServingPort)
	if err := os.WriteFile(filepath.Join(webhooks.LocalServingCertDir, webhook.PathFile), []byte(webhookPathSegment), 0o600); err != nil {
		return nil, err
	}
	end = func() error {
		removeWebhooks(context.WithoutCancel(ctx), webhooks)
		removeAdmissionPolicies(context.WithoutCancel(ctx))
		return nil
	}
	if err := createSessionPolicy(ctx); err != nil {
		return nil, errors.Join(err, end())
	}
	if err := adaptWebhooks(ctx, webhooks); err != nil {
		return nil, errors.Join(err, end())
	}
	if err := startOperator(ctx, webhooks); err != nil {
		return nil, errors.Join(err, end())
	}
	return end, nil
}

// webhookLabel on a namespace enables or disables the webhook there. Without the webhook, the
// reconciler reports what the webhook rejects in other namespaces.
const webhookLabel = "test.yardmaster.dev/webhook"

// nonExemptNamespaces selects the namespaces in which the webhooks are enabled.
func nonExemptNamespaces() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: webhookLabel, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"off"},
	}}}
}

// webhookPathSegment is the secret in the path of the webhooks.
const webhookPathSegment = "secret-of-the-tests"

// webhookAddress is the address of the webhook server.
var webhookAddress string

// adaptWebhooks limits the webhooks to namespaces that are not exempt. They are called by address, with
// the secret that the operator would write into the path of the Service.
func adaptWebhooks(ctx context.Context, webhooks *envtest.WebhookInstallOptions) error {
	for _, configuration := range webhooks.ValidatingWebhooks {
		for i := range configuration.Webhooks {
			w := &configuration.Webhooks[i]
			w.NamespaceSelector = nonExemptNamespaces()
			w.ClientConfig.Service = nil
			w.ClientConfig.URL = new(webhookAddress + "/" + webhookPathSegment + webhook.ValidatingPath(w.Name))
		}
		if err := cluster.Update(ctx, configuration); err != nil {
			return fmt.Errorf("adapting the webhook: %w", err)
		}
	}
	for _, configuration := range webhooks.MutatingWebhooks {
		for i := range configuration.Webhooks {
			w := &configuration.Webhooks[i]
			w.NamespaceSelector = nonExemptNamespaces()
			w.ClientConfig.Service = nil
			w.ClientConfig.URL = new(webhookAddress + "/" + webhookPathSegment + webhook.MutatingPath(w.Name))
		}
		if err := cluster.Update(ctx, configuration); err != nil {
			return fmt.Errorf("adapting the webhook: %w", err)
		}
	}
	return nil
}

const operatorKeySecret = "yardmaster-worker-admin"

func startOperator(ctx context.Context, webhooks *envtest.WebhookInstallOptions) error {
	operators := rest.CopyConfig(config)
	operators.Wrap(faults.wrap)
	key := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: operatorKeySecret}}
	if err := client.IgnoreAlreadyExists(cluster.Create(ctx, key)); err != nil {
		return err
	}
	mgr, err := operator.New(operators, operator.Options{
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
		Webhook: operator.WebhookOptions{
			Enabled:  true,
			Mutating: true,
			Port:     webhooks.LocalServingPort,
			CertDir:  webhooks.LocalServingCertDir,
		},
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
// test of a pool runs its own, which knows the addresses of the test's workers. The webhook of
// WorkerPools is used.
func controllers() []operator.Controller {
	all := operator.AllControllers()
	for i := range all {
		if all[i].Name == "workerpool" {
			all[i].Setup = func(ctrl.Manager, operator.Options) error { return nil }
		}
	}
	return all
}

// removeWebhooks removes the webhook's registration. Without the operator, the API server would
// reject every SequentialJob.
func removeWebhooks(ctx context.Context, webhooks *envtest.WebhookInstallOptions) {
	var configurations []client.Object
	for _, configuration := range webhooks.ValidatingWebhooks {
		configurations = append(configurations, configuration)
	}
	for _, configuration := range webhooks.MutatingWebhooks {
		configurations = append(configurations, configuration)
	}
	for _, configuration := range configurations {
		if err := cluster.Delete(ctx, configuration); err != nil {
			fmt.Fprintln(os.Stderr, "removing the webhook:", err)
		}
	}
	if err := webhooks.Cleanup(); err != nil {
		fmt.Fprintln(os.Stderr, "removing the certificates:", err)
	}
}

func readYAML(path string, into any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return yaml.Unmarshal(raw, into)
}

// namespace creates a namespace that is deleted after the test.
func namespace(t *testing.T) string {
	t.Helper()
	return newNamespace(t, nil)
}

// namespaceWithoutWebhook creates a namespace in which the webhook is disabled.
func namespaceWithoutWebhook(t *testing.T) string {
	t.Helper()
	return newNamespace(t, map[string]string{webhookLabel: "off"})
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
		t.Cleanup(func() {
			if err := client.IgnoreNotFound(cluster.Delete(context.Background(), object)); err != nil {
				t.Error(err)
			}
		})
	}
}

func mustDelete(t *testing.T, object client.Object, options ...client.DeleteOption) {
	t.Helper()
	require.NoError(t, cluster.Delete(t.Context(), object, options...))
}

func mustGet(t *testing.T, key client.ObjectKey, object client.Object) {
	t.Helper()
	require.NoError(t, cluster.Get(t.Context(), key, object))
}

func mustPatch(t *testing.T, object client.Object, patch client.Patch, options ...client.PatchOption) {
	t.Helper()
	require.NoError(t, cluster.Patch(t.Context(), object, patch, options...))
}
