package plugin

import (
	"io"

	"github.com/spf13/pflag"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// clusterConnection leads to a cluster.
type clusterConnection struct {
	client.WithWatch

	// restConfig reaches what no client here does: ports of Pods.
	restConfig *rest.Config
	// podsGetter have logs, which the client above knows nothing of.
	podsGetter typedcorev1.PodsGetter
	// namespace that a command is about if it is told no other.
	namespace string
}

// addConnectionFlags are those of kubectl. They come from client-go, which is needed anyway:
// cli-runtime's differ by little, and bring kustomize, eleven modules in all, which doubles the program.
func addConnectionFlags(flags *pflag.FlagSet) clientcmd.ClientConfig {
	rules, overrides := clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{}
	flags.StringVar(&rules.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "Path of the kubeconfig.")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ClusterOverrideFlags.APIServer.ShortName = "s"
	clientcmd.BindOverrideFlags(overrides, flags, names)
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

// newConnector connects as the kubeconfig and the flags say. Warnings of the API server go to
// errOut, as with kubectl.
func newConnector(errOut io.Writer) func(clientcmd.ClientConfig) (*clusterConnection, error) {
	return func(loading clientcmd.ClientConfig) (*clusterConnection, error) {
		namespace, _, err := loading.Namespace()
		if err != nil {
			return nil, err
		}
		config, err := loading.ClientConfig()
		if err != nil {
			return nil, err
		}
		config.WarningHandler = rest.NewWarningWriter(errOut, rest.WarningWriterOptions{Deduplicate: true})
		scheme, err := newClientScheme()
		if err != nil {
			return nil, err
		}
		c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
		if err != nil {
			return nil, err
		}
		pods, err := typedcorev1.NewForConfig(config)
		return &clusterConnection{WithWatch: c, restConfig: config, podsGetter: pods, namespace: namespace}, err
	}
}

// newClientScheme has the kinds that the plugin knows.
func newClientScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(autoscalingv1.AddToScheme, batchv1.AddToScheme, corev1.AddToScheme, discoveryv1.AddToScheme, v1alpha1.AddToScheme)
	return scheme, builder.AddToScheme(scheme)
}
