package cluster

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/yardmaster/yardmaster/test/demo/shell"
)

const localClusterName = "demo"

// localCluster is a cluster of the command localcluster.
type localCluster struct {
	kubeconfig    string
	operatorImage string
}

// Prepare implements Cluster. It builds the command localcluster, which the Makefile also uses.
func (*localCluster) Prepare(ctx context.Context) error {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return errors.New("the default cluster of the demo needs root on Linux; use CLUSTER=kind make demo with Docker, " +
			"or CLUSTER=current make demo with a cluster that exists")
	}
	return runMake(ctx, "localcluster")
}

// Start implements Cluster.
func (d *localCluster) Start(ctx context.Context) error {
	if err := shell.Run(ctx, localClusterTool, "up", "--brief", "--name", localClusterName); err != nil {
		return err
	}
	var err error
	d.kubeconfig, err = shell.Output(ctx, localClusterTool, "kubeconfig", "--name", localClusterName)
	return err
}

// BuildImages implements Cluster.
func (d *localCluster) BuildImages(ctx context.Context) (err error) {
	d.operatorImage, err = buildArchives(ctx)
	return err
}

// LoadImages implements Cluster.
func (d *localCluster) LoadImages(ctx context.Context) (string, error) {
	return d.operatorImage, loadArchives(ctx, localClusterName)
}

// KubeconfigPath implements Cluster.
func (d *localCluster) KubeconfigPath(context.Context) (string, error) { return d.kubeconfig, nil }

// KubectlCommand implements Cluster. An installed kubectl saves building one.
func (d *localCluster) KubectlCommand() []string {
	if _, err := exec.LookPath("kubectl"); err == nil {
		return []string{"kubectl", "--kubeconfig", d.kubeconfig}
	}
	return localKubectl(localClusterName)
}

// localKubectl returns the command that runs the kubectl of a cluster of localcluster.
func localKubectl(clusterName string) []string {
	tool, err := filepath.Abs(localClusterTool)
	if err != nil {
		tool = localClusterTool
	}
	return []string{tool, "kubectl", "--name", clusterName, "--"}
}

// Delete implements Cluster.
func (d *localCluster) Delete(ctx context.Context) error {
	if err := d.Prepare(ctx); err != nil {
		return err
	}
	return shell.Run(ctx, localClusterTool, "down", "--name", localClusterName)
}
