// Package testenv contains what all tests on a cluster need: clients, the kinds of the operator, namespaces, operators in
// processes of their own, and a folder with what explains a failure.
package testenv

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/operator/webhook"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// FieldOwner owns the fields of the CustomResourceDefinitions that InstallCRDs applies.
const FieldOwner = client.FieldOwner("yardmaster-test")

// Cluster is a client of a cluster.
type Cluster struct {
	client.WithWatch

	Config     *rest.Config
	Kubeconfig string
}

// Start prepares the tests of a package. The end is called after the tests, and then ctx ends. An error of the end fails the run.
type Start func(ctx context.Context, c *Cluster) (end func() error, err error)

// Main connects to the cluster of KUBECONFIG, runs the tests of a package, and exits. Its message about a missing
// KUBECONFIG names the make target that sets it.
func Main(m *testing.M, target string, start Start) {
	code, err := runTests(m, target, start)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	ReportArtifacts(code)
	os.Exit(code)
}

func runTests(m *testing.M, target string, start Start) (code int, err error) {
	kubeconfig := os.Getenv("KUBECONFIG")
	if kubeconfig == "" {
		return 0, fmt.Errorf("KUBECONFIG is not set, so there is no cluster to test against: use %s", target)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := Connect(kubeconfig)
	if err != nil {
		return 0, err
	}
	end, err := start(ctx, c)
	if err != nil {
		return 0, fmt.Errorf("preparing the tests: %w", err)
	}
	code = m.Run()
	return code, end()
}

// NothingToEnd is the end of tests that leave the cluster to hack/with-cluster.
func NothingToEnd() error { return nil }

// WithCRDs is the Start of packages whose tests need only the kinds of the operator. It stores the cluster in c.
func WithCRDs(c **Cluster) Start {
	return func(ctx context.Context, connected *Cluster) (func() error, error) {
		*c = connected
		return NothingToEnd, connected.InstallCRDs(ctx)
	}
}

// Connect returns clients of the cluster.
func Connect(kubeconfig string) (*Cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.WarningHandler = rest.NoWarnings{} // warnings are for interactive clients
	config.QPS = -1                           // only API Priority and Fairness limits the client, as it does the operator
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	withWatch, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	return &Cluster{WithWatch: withWatch, Config: config, Kubeconfig: kubeconfig}, nil
}

// InstallCRDs applies the CustomResourceDefinitions of config/crd/bases, and waits until the API server serves all kinds.
func (c *Cluster) InstallCRDs(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join(Root(), "config", "crd", "bases", "*.yaml"))
	if err != nil {
		return err
	}
	var kinds []schema.GroupVersionKind
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(raw, crd); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		kind, _, err := unstructured.NestedString(crd.Object, "spec", "names", "kind")
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		kinds = append(kinds, v1alpha1.GroupVersion.WithKind(kind))
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(crd), FieldOwner, client.ForceOwnership); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return poll.UntilNil(ctx, func() error {
		var missing []error
		for _, kind := range kinds {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind)
			_, err := c.RESTMapper().RESTMapping(kind.GroupKind())
			missing = append(missing, err, c.List(ctx, list, client.Limit(1)))
		}
		return errors.Join(missing...)
	})
}

// NewNamespace creates a namespace with a name that begins with the prefix. After the test it deletes the namespace. If
// the test has failed, it saves the objects of the namespace before.
func (c *Cluster) NewNamespace(t testing.TB, prefix string, labels map[string]string) string {
	t.Helper()
	ns := &corev1.Namespace{}
	ns.GenerateName, ns.Labels = prefix, labels
	return c.createNamespace(t, ns)
}

// CreateNamespace is NewNamespace for a namespace whose name the test knows.
func (c *Cluster) CreateNamespace(t testing.TB, name string) {
	t.Helper()
	ns := &corev1.Namespace{}
	ns.Name = name
	c.createNamespace(t, ns)
}

func (c *Cluster) createNamespace(t testing.TB, ns *corev1.Namespace) string {
	t.Helper()
	require.NoError(t, c.Create(t.Context(), ns))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		SaveObjectsOfFailedTest(ctx, t, c, ns.Name)
		if err := client.IgnoreNotFound(c.Delete(ctx, ns)); err != nil {
			t.Error(err)
		}
	})
	return ns.Name
}

// RemoveFinalizers makes the objects of these kinds deletable without an operator.
func (c *Cluster) RemoveFinalizers(t testing.TB, namespace string, kinds ...string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	for _, kind := range kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			t.Error(err)
		}
		for i := range list.Items {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`))
			if err := client.IgnoreNotFound(c.Patch(ctx, &list.Items[i], patch)); err != nil {
				t.Error(err)
			}
		}
	}
}

// Root is the root of the repository: the working directory, or the next one above it that has the manifests.
var Root = sync.OnceValue(func() string {
	directory, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(directory, "config", "crd", "bases")); err == nil {
			return directory
		}
		parent := filepath.Dir(directory)
		if parent == directory {
			panic("the working directory is not in the repository")
		}
		directory = parent
	}
})

// StartProxy starts a proxy in front of the API server. It returns the path of a kubeconfig that selects the namespace through the
// proxy. handle gets each request, and what forwards it; change gets each response, unless it is nil.
func (c *Cluster) StartProxy(
	t testing.TB, namespace string, handle func(http.ResponseWriter, *http.Request, http.Handler), change func(*http.Response) error,
) (server *httptest.Server, kubeconfig string) {
	t.Helper()
	target, err := url.Parse(c.Config.Host)
	require.NoError(t, err)
	transport, err := rest.TransportFor(c.Config)
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport, FlushInterval: -1, ModifyResponse: change,
	}
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(w, r, proxy) }))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	config := clientcmdapi.NewConfig()
	config.Clusters["proxy"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy", Namespace: namespace}
	config.CurrentContext = "proxy"
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, kubeconfig))
	return server, kubeconfig
}

const (
	// WebhookLabel on a namespace disables the webhooks there if it is "off". Then the operator sees what they would reject.
	WebhookLabel = "test.yardmaster.dev/webhook"
	// WebhookPathSegment is the secret in the path of the webhooks.
	WebhookPathSegment = "secret-of-the-tests"
)

// Webhooks of the operator that the API server calls by address, as it cannot reach them through a Service.
type Webhooks struct {
	envtest.WebhookInstallOptions

	// Address is that of the server.
	Address string
	cluster *Cluster
}

// InstallWebhooks registers the webhooks, and creates the certificates and the secret path of their server.
func (c *Cluster) InstallWebhooks(ctx context.Context) (*Webhooks, error) {
	w := &Webhooks{cluster: c}
	w.Paths = []string{filepath.Join(Root(), "config", "webhook", "webhooks.yaml")}
	if err := w.Install(c.Config); err != nil {
		return nil, fmt.Errorf("installing the webhooks: %w", err)
	}
	w.Address = fmt.Sprintf("https://%s:%d", w.LocalServingHost, w.LocalServingPort)
	err := os.WriteFile(filepath.Join(w.LocalServingCertDir, webhook.PathFile), []byte(WebhookPathSegment), 0o600)
	for _, configuration := range w.configurations() {
		if err == nil {
			err = c.Update(ctx, configuration)
		}
	}
	if err != nil {
		return nil, errors.Join(err, w.Remove(ctx))
	}
	return w, nil
}

// configurations returns those of the installation, changed for the address.
func (w *Webhooks) configurations() (all []client.Object) {
	namespaces := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: WebhookLabel, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"off"},
	}}}
	adapt := func(selector **metav1.LabelSelector, config *admissionregistrationv1.WebhookClientConfig, path string) {
		*selector, config.Service, config.URL = namespaces, nil, new(w.Address+"/"+WebhookPathSegment+path)
	}
	for _, configuration := range w.ValidatingWebhooks {
		for i := range configuration.Webhooks {
			hook := &configuration.Webhooks[i]
			adapt(&hook.NamespaceSelector, &hook.ClientConfig, webhook.ValidatingPath(hook.Name))
		}
		all = append(all, configuration)
	}
	for _, configuration := range w.MutatingWebhooks {
		for i := range configuration.Webhooks {
			hook := &configuration.Webhooks[i]
			adapt(&hook.NamespaceSelector, &hook.ClientConfig, webhook.MutatingPath(hook.Name))
		}
		all = append(all, configuration)
	}
	return all
}

// Remove deletes the configurations. Without the operator, the API server would reject every object.
func (w *Webhooks) Remove(ctx context.Context) error {
	var errs []error
	for _, configuration := range w.configurations() {
		errs = append(errs, w.cluster.Delete(ctx, configuration))
	}
	return errors.Join(append(errs, w.Cleanup())...)
}
