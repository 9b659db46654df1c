package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/portforward"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

type clusterConnection struct {
	client.WithWatch

	// restConfig is for port forwarding, which client.Client lacks.
	restConfig *rest.Config
	// podsGetter is for the logs of Pods, which client.Client lacks.
	podsGetter typedcorev1.PodsGetter
	// namespace is the namespace of the flags or the kubeconfig.
	namespace string
}

// addConnectionFlags adds kubectl's connection flags and returns the selected configuration. The flags of cli-runtime differ little,
// but its module brings ten others, kustomize among them, and doubles the size of the binary.
func addConnectionFlags(flags *pflag.FlagSet) clientcmd.ClientConfig {
	rules, overrides := clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{}
	flags.StringVar(&rules.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "Path to the kubeconfig file.")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ClusterOverrideFlags.APIServer.ShortName = "s"
	clientcmd.BindOverrideFlags(overrides, flags, names)
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

// newConnector returns a function that connects to the cluster of a client configuration. Warnings from the API server are printed to
// errOut, as kubectl does.
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
		config.QPS = -1 // only the API server's priority and fairness limits the plugin, as it does the operator
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

func newClientScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(admissionregistrationv1.AddToScheme, appsv1.AddToScheme, authenticationv1.AddToScheme,
		authorizationv1.AddToScheme, autoscalingv1.AddToScheme, batchv1.AddToScheme, coordinationv1.AddToScheme, corev1.AddToScheme,
		discoveryv1.AddToScheme, policyv1.AddToScheme, v1alpha1.AddToScheme)
	return scheme, builder.AddToScheme(scheme)
}

// patchIfUnchanged writes the difference between before and after. If the object changed since before was read, it writes nothing and
// returns an error.
func (c *clusterConnection) patchIfUnchanged(ctx context.Context, qualifiedName string, before, after client.Object) error {
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return explainConflict(qualifiedName, c.Patch(ctx, after, patch))
}

// explainConflict replaces the API server's message about a conflict.
func explainConflict(qualifiedName string, err error) error {
	if apierrors.IsConflict(err) {
		return fmt.Errorf("%s was changed by someone else at the same time; nothing was written: check the change and try again", qualifiedName)
	}
	return err
}

// isPermissionError reports whether a retry cannot succeed because the caller lacks permission.
func isPermissionError(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}

type podPort struct {
	namespace, podName string
	port               int32
}

// forwardPort forwards a local port to a port of a Pod, through WebSockets, as kubectl does.
func (c *clusterConnection) forwardPort(ctx context.Context, to *podPort) (local uint16, stop func(), err error) {
	core, err := typedcorev1.NewForConfig(c.restConfig)
	if err != nil {
		return 0, nil, err
	}
	address := core.RESTClient().Post().Resource("pods").Namespace(to.namespace).Name(to.podName).SubResource("portforward").URL()
	dialer, err := portforward.NewSPDYOverWebsocketDialerForStreaming(address, c.restConfig)
	if err != nil {
		return 0, nil, err
	}
	stopped, ready, failed, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1), make(chan struct{})
	forwarder, err := portforward.NewOnAddressesForStreaming(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf(":%d", to.port)},
		stopped, ready, io.Discard, io.Discard)
	if err != nil {
		return 0, nil, err
	}
	go func() {
		defer close(ended)
		failed <- forwarder.ForwardPorts()
	}()
	stop = func() {
		close(stopped)
		<-ended
	}
	select {
	case <-ready:
	case err := <-failed:
		return 0, nil, err
	case <-ctx.Done():
		close(stopped) // without waiting, because the API server may never answer
		return 0, nil, ctx.Err()
	}
	ports, err := forwarder.GetPorts()
	if err == nil && len(ports) != 1 {
		err = errors.New("the API server forwarded no port")
	}
	if err != nil {
		stop()
		return 0, nil, err
	}
	return ports[0].Local, stop, nil
}
