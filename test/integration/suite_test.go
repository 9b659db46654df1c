// Package integration tests the operator against the real API server of KUBECONFIG. The operator
// and its webhook run in the process of the test.
package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
	"github.com/yardmaster/yardmaster/internal/manager"
	"github.com/yardmaster/yardmaster/internal/webhook/server"
)

// repositoryRoot is the path of the repository's root.
const repositoryRoot = "../.."

// Clients of the cluster.
var (
	config  *rest.Config
	cluster client.Client
)

func TestMain(m *testing.M) {
	if os.Getenv("KUBECONFIG") == "" {
		fmt.Println("KUBECONFIG is not set, so there is no cluster to test against: use make test-integration")
		return
	}
	os.Exit(runTests(m))
}

// runTests runs the tests with the operator.
func runTests(m *testing.M) int {
	ctx, stop := context.WithCancel(context.Background())
	end, err := connectAndRunOperator(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the operator:", err)
		stop()
		return 1
	}
	code := m.Run()
	end()
	stop()
	return code
}

// connectAndRunOperator connects to the cluster, installs the CRDs and runs the operator. Its webhook is
// registered by address, as the API server cannot reach it through a Service.
func connectAndRunOperator(ctx context.Context) (end func(), err error) {
	ctrl.SetLogger(zap.New(zap.WriteTo(logFile())))
	if config, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG")); err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 1000, 1000
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if cluster, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	if err := installCRDs(ctx); err != nil {
		return nil, fmt.Errorf("installing the CRDs: %w", err)
	}
	webhooks := &envtest.WebhookInstallOptions{Paths: []string{filepath.Join(repositoryRoot, "config", "webhook", "webhooks.yaml")}}
	if err := webhooks.Install(config); err != nil {
		return nil, fmt.Errorf("installing the webhook: %w", err)
	}
	webhookAddress = fmt.Sprintf("https://%s:%d", webhooks.LocalServingHost, webhooks.LocalServingPort)
	if err := os.WriteFile(filepath.Join(webhooks.LocalServingCertDir, server.PathFile), []byte(webhookPathSegment), 0o600); err != nil {
		return nil, err
	}
	end = func() { removeWebhooks(context.WithoutCancel(ctx), webhooks) }
	if err := adaptWebhooks(ctx, webhooks); err != nil {
		end()
		return nil, err
	}
	if err := startOperator(ctx, webhooks); err != nil {
		end()
		return nil, err
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
			w.ClientConfig.URL = new(webhookAddress + "/" + webhookPathSegment + server.ValidatingPath(w.Name))
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
			w.ClientConfig.URL = new(webhookAddress + "/" + webhookPathSegment + server.MutatingPath(w.Name))
		}
		if err := cluster.Update(ctx, configuration); err != nil {
			return fmt.Errorf("adapting the webhook: %w", err)
		}
	}
	return nil
}

// logFile opens the file for the operator's log: OPERATOR_LOG, or none.
func logFile() *os.File {
	path := os.Getenv("OPERATOR_LOG")
	if path == "" {
		path = os.DevNull
	}
	file, err := os.Create(path)
	if err != nil {
		return os.Stderr
	}
	return file
}

const operatorKeySecret = "yardmaster-worker-admin"

func startOperator(ctx context.Context, webhooks *envtest.WebhookInstallOptions) error {
	operators := rest.CopyConfig(config)
	operators.Wrap(faults.wrap)
	key := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: operatorKeySecret}}
	if err := client.IgnoreAlreadyExists(cluster.Create(ctx, key)); err != nil {
		return err
	}
	mgr, err := manager.New(operators, manager.Options{
		Controllers:   controllers(),
		Concurrency:   10,
		QueueSweep:    2 * time.Second,
		BrokerNetwork: bounded.Options{AllowLocal: true},
		// The key of this Secret signs the tokens of sessions for egress proxies, whose Pods the nodes simulate.
		OperatorNamespace: metav1.NamespaceDefault, WorkerAdminSecret: operatorKeySecret, WorkerImage: "yardmaster:test",
		KubeAPIQPS:    -1,
		HealthAddress: "0",
		Metrics:       manager.MetricsOptions{Address: "0"},
		Webhook: manager.WebhookOptions{
			Enabled:        true,
			Mutating:       true,
			Port:           webhooks.LocalServingPort,
			CertDir:        webhooks.LocalServingCertDir,
			CertManagement: manager.CertManagementExternal,
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
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return mgr.GetWebhookServer().StartedChecker()(nil) == nil, nil
	})
}

// controllers returns the controllers that run during all tests. That of WorkerPools does not: each
// test of a pool runs its own, which knows the addresses of the test's workers. The webhook of
// WorkerPools is used.
func controllers() []manager.Controller {
	all := manager.AllControllers()
	for i := range all {
		if all[i].Name == "workerpool" {
			all[i].Setup = func(ctrl.Manager, manager.Options) error { return nil }
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

// installCRDs applies config/crd/bases and waits until the kinds are served.
func installCRDs(ctx context.Context) error {
	paths, err := filepath.Glob(filepath.Join(repositoryRoot, "config", "crd", "bases", "*.yaml"))
	if err != nil {
		return err
	}
	var kinds []schema.GroupVersionKind
	for _, path := range paths {
		crd := &unstructured.Unstructured{}
		if err := readYAML(path, crd); err != nil {
			return err
		}
		kind, _, err := unstructured.NestedString(crd.Object, "spec", "names", "kind")
		if err != nil {
			return err
		}
		kinds = append(kinds, v1alpha1.GroupVersion.WithKind(kind))
		if err := cluster.Apply(ctx, client.ApplyConfigurationFromUnstructured(crd), client.FieldOwner("yardmaster-test"), client.ForceOwnership); err != nil {
			return err
		}
	}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		for _, kind := range kinds {
			if _, err := cluster.RESTMapper().RESTMapping(kind.GroupKind()); err != nil {
				if meta.IsNoMatchError(err) {
					return false, nil
				}
				return false, err
			}
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind)
			if served := cluster.List(ctx, list) == nil; !served {
				return false, nil
			}
		}
		return true, nil
	})
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
	ns := &corev1.Namespace{}
	ns.GenerateName = "test-"
	ns.Labels = labels
	if err := cluster.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(cluster.Delete(context.Background(), ns)); err != nil {
			t.Error(err)
		}
	})
	return ns.Name
}

// eventually waits until the condition is true. Its limit only ends tests that would wait forever.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		return condition(), nil
	})
	if err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}
