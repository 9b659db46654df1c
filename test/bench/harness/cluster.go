// Package harness contains what the benchmarks share: a control plane, a release build of the
// operator, brokers, and measurements of processes.
package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

const (
	clusterName        = "bench"
	localclusterBinary = "bin/localcluster"
)

// Cluster is the control plane on which a benchmark runs.
type Cluster struct {
	client.WithWatch

	Config     *rest.Config
	Kubeconfig string
}

// OpenCluster connects to the control plane of a kubeconfig and installs the
// CustomResourceDefinitions. If kubeconfig is empty, it starts a local control plane. Call the
// returned function at the end.
func OpenCluster(ctx context.Context, kubeconfig string) (*Cluster, func(), error) {
	if kubeconfig == "" {
		c, err := StartCluster(ctx)
		if err != nil {
			return nil, nil, err
		}
		return c, func() { c.StopControlPlane(ctx) }, nil
	}
	c, err := ConnectToCluster(kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	return c, func() {}, c.installCRDs(ctx)
}

// StartCluster starts a local control plane and installs the CustomResourceDefinitions.
func StartCluster(ctx context.Context) (*Cluster, error) {
	if err := RunCommand(ctx, localclusterBinary, "up", "--mode", "control-plane", "--name", clusterName); err != nil {
		return nil, err
	}
	kubeconfig, err := exec.CommandContext(ctx, localclusterBinary, "kubeconfig", "--name", clusterName).Output()
	if err != nil {
		return nil, fmt.Errorf("getting the kubeconfig: %w", err)
	}
	c, err := ConnectToCluster(strings.TrimSpace(string(kubeconfig)))
	if err != nil {
		return nil, err
	}
	return c, c.installCRDs(ctx)
}

// ConnectToCluster connects to a running cluster.
func ConnectToCluster(kubeconfig string) (*Cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // only API Priority and Fairness limits the client, as it does the operator
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	withWatch, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	return &Cluster{WithWatch: withWatch, Config: config, Kubeconfig: kubeconfig}, nil
}

// StopControlPlane stops the local control plane, even if ctx has ended.
func (*Cluster) StopControlPlane(ctx context.Context) {
	if err := RunCommand(context.WithoutCancel(ctx), localclusterBinary, "down", "--name", clusterName); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
}

func (c *Cluster) installCRDs(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join("config", "crd", "bases", "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := c.installCRDFile(ctx, file); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

func (c *Cluster) installCRDFile(ctx context.Context, file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(raw, crd); err != nil {
		return err
	}
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(crd), client.FieldOwner("bench"), client.ForceOwnership); err != nil {
		return err
	}
	return PollUntil(ctx, time.Minute, func() (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
			return false, err
		}
		return isEstablished(crd), nil
	})
}

func isEstablished(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == "Established" && condition["status"] == "True"
	})
}
