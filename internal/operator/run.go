// Package operator assembles the operator's process: flags, cache, health checks, metrics, and the controllers to run.
// It contains no logic of a controller.
package operator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"

	corev1 "k8s.io/api/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/kube/metric"
	"github.com/yardmaster/yardmaster/internal/version"
)

// buildInfo has the version of the operator as labels, so that metrics can be compared before and after an upgrade.
var buildInfo = metric.NewGaugeVec("yardmaster_build_info",
	"Always 1. The labels have the version and the commit of the operator, and the release of Go that built it.",
	"version", "revision", "goversion")

// Run runs the operator until ctx ends. It then waits for running reconciliations and releases the Lease. The process must exit after
// Run returns.
func Run(ctx context.Context, config *rest.Config, o Options) error {
	logger := ctrl.Log
	if err := o.detectNamespaces(); err != nil {
		return err
	}
	if err := o.detectWorkerImage(ctx, config); err != nil {
		return err
	}
	mgr, err := New(config, o)
	if err != nil {
		return err
	}
	if _, found := os.LookupEnv("GOGC"); !found {
		go adaptCollector(ctx)
	}
	buildInfo.WithLabelValues(version.Version(), version.Revision(), runtime.Version()).Set(1)
	logger.Info("Starting", "version", version.Version(), "controllers", controllerNames(o.Controllers), "namespaces", o.Namespaces)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the manager: %w", err)
	}
	logger.Info("Stopped")
	return nil
}

// serviceAccountNamespace is the file with the name of a Pod's namespace.
const serviceAccountNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// detectNamespaces sets the namespaces of the operator and its Lease if no flag sets them.
func (o *Options) detectNamespaces() error {
	if o.OperatorNamespace == "" {
		namespace, err := os.ReadFile(serviceAccountNamespace)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		o.OperatorNamespace = strings.TrimSpace(string(namespace))
	}
	if err := refuseNamespace(o.OperatorNamespace); err != nil {
		return err
	}
	if o.LeaderElection.Namespace == "" {
		o.LeaderElection.Namespace = o.OperatorNamespace
	}
	if o.OperatorNamespace == "" && o.Webhook.Enabled {
		return errors.New("outside a cluster, --operator-namespace must be given, or --webhook=false")
	}
	if o.LeaderElection.Enabled && o.LeaderElection.Namespace == "" {
		return errors.New("outside a cluster, --leader-election-namespace must be given, or --leader-elect=false")
	}
	return nil
}

// operatorContainer is the container of the operator's Pod that runs this program.
const operatorContainer = "yardmaster"

// detectWorkerImage sets WorkerImage if no flag sets it: workers' sidecars run the operator's own program, so the manifests name the
// image once.
func (o *Options) detectWorkerImage(ctx context.Context, config *rest.Config) error {
	if o.WorkerImage != "" || o.OperatorPod == "" || o.OperatorNamespace == "" {
		return nil
	}
	reader, err := client.New(config, client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		return fmt.Errorf("creating a client for the Pod of the operator: %w", err)
	}
	o.WorkerImage, err = imageOfPod(ctx, reader, client.ObjectKey{Namespace: o.OperatorNamespace, Name: o.OperatorPod})
	return err
}

func imageOfPod(ctx context.Context, reader client.Reader, key client.ObjectKey) (string, error) {
	pod := &corev1.Pod{}
	if err := reader.Get(ctx, key, pod); err != nil {
		return "", fmt.Errorf("reading the image of the operator: %w", err)
	}
	for i := range pod.Spec.Containers {
		if container := &pod.Spec.Containers[i]; container.Name == operatorContainer {
			return container.Image, nil
		}
	}
	return "", fmt.Errorf("reading the image of the operator: Pod %s has no container %s; set --worker-image", key, operatorContainer)
}
