package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/yardmaster/yardmaster/test/demo/shell"
)

// currentCluster is the cluster of the current kubeconfig. There is no registry from which every cluster can pull, so
// the demo needs a way to load images into the cluster.
type currentCluster struct {
	kubeconfig    string
	loader        imageLoader
	operatorImage string
}

// imageLoader is how images get into a cluster.
type imageLoader struct {
	// name of the tool.
	name string
	// program must be installed, beside Docker. It is empty if the cluster and Docker share their images.
	program string
	// load returns the arguments of the program that load an image.
	load func(image string) []string
}

// localLoader is the loader of clusters that localcluster runs, which need no Docker.
var localLoader = imageLoader{name: typeLocal}

// loaderOf returns the loader for a context of a kubeconfig, by the names that local clusters give to theirs.
func loaderOf(contextName string) (loader imageLoader, found bool) {
	kind, isKind := strings.CutPrefix(contextName, "kind-")
	k3d, isK3d := strings.CutPrefix(contextName, "k3d-")
	switch {
	case contextName == typeLocal:
		return localLoader, true
	case isKind:
		return imageLoader{typeKind, typeKind, func(image string) []string { return []string{"load", "docker-image", image, "--name", kind} }}, true
	case isK3d:
		return imageLoader{"k3d", "k3d", func(image string) []string { return []string{"image", "import", image, "--cluster", k3d} }}, true
	case contextName == "minikube":
		return imageLoader{"minikube", "minikube", func(image string) []string { return []string{"image", "load", image} }}, true
	case contextName == "docker-desktop", contextName == "orbstack", contextName == "rancher-desktop":
		return imageLoader{name: contextName}, true
	default:
		return imageLoader{}, false
	}
}

// Prepare implements Cluster. It refuses a cluster in which the operator or a broker was installed by somebody else:
// deploying them again would change their settings.
func (d *currentCluster) Prepare(ctx context.Context) error {
	if _, err := exec.LookPath("kubectl"); err != nil {
		return errors.New("CLUSTER=current needs kubectl, which is not in the PATH: see https://kubernetes.io/docs/tasks/tools")
	}
	name, err := shell.Output(ctx, "kubectl", "config", "current-context")
	if err != nil {
		return fmt.Errorf("CLUSTER=current needs a kubeconfig with a current context, see kubectl config: %w", err)
	}
	loader, found := loaderOf(name)
	if !found {
		return fmt.Errorf("CLUSTER=current cannot load images into the cluster of the context %q: it can for localcluster, kind, k3d, minikube, "+
			"docker-desktop, orbstack and rancher-desktop. For other clusters, see \"On your own cluster\" in README.md", name)
	}
	d.loader = loader
	if err := d.checkLoader(); err != nil {
		return err
	}
	if err := d.writeKubeconfig(ctx); err != nil {
		return err
	}
	if err := d.checkNamespaces(ctx); err != nil || d.loader.name != typeLocal {
		return err
	}
	return runMake(ctx, "localcluster")
}

// writeKubeconfig writes the current context to a file, because a kubeconfig can consist of several files, and can change while the demo runs.
func (d *currentCluster) writeKubeconfig(ctx context.Context) error {
	content, err := shell.Output(ctx, "kubectl", "config", "view", "--minify", "--flatten", "--raw")
	if err != nil {
		return err
	}
	const directoryMode, fileMode = 0o750, 0o600
	if err := os.MkdirAll(filepath.Dir(demoKubeconfig), directoryMode); err != nil {
		return err
	}
	if d.kubeconfig, err = filepath.Abs(demoKubeconfig); err != nil {
		return err
	}
	return os.WriteFile(d.kubeconfig, []byte(content), fileMode)
}

func (d *currentCluster) checkLoader() error {
	if d.loader.name == typeLocal {
		return nil
	}
	for _, program := range []string{"docker", d.loader.program} {
		if program == "" {
			continue
		}
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("a cluster of %s needs %s, which is not in the PATH", d.loader.name, program)
		}
	}
	return nil
}

// checkNamespaces returns an error if the demo would change what others created.
func (d *currentCluster) checkNamespaces(ctx context.Context) error {
	if _, err := d.isCreatedByDemo(ctx, BrokerNamespace); err != nil {
		return err
	}
	created, err := d.isCreatedByDemo(ctx, OperatorNamespace)
	if err != nil || created {
		return err
	}
	installed, err := d.runKubectl(ctx, "get", "crd", "sequentialjobs.yardmaster.dev", "--ignore-not-found", "-o", "name")
	if err == nil && installed != "" {
		err = errors.New("the operator's CustomResourceDefinitions are already installed in the cluster, and the demo would change them: use another cluster")
	}
	return err
}

// isCreatedByDemo reports whether a namespace exists that the demo created. It returns an error if others created it.
func (d *currentCluster) isCreatedByDemo(ctx context.Context, namespace string) (bool, error) {
	text, err := d.runKubectl(ctx, "get", "namespace", namespace, "--ignore-not-found", "-o", "jsonpath={.metadata.name} {.metadata.annotations}")
	if err != nil || text == "" {
		return false, err
	}
	if !strings.Contains(text, MarkerAnnotation) {
		return false, fmt.Errorf("the cluster has a namespace %s that the demo did not create and would change: use another cluster", namespace)
	}
	return true, nil
}

func (d *currentCluster) runKubectl(ctx context.Context, args ...string) (output string, err error) {
	command := d.KubectlCommand()
	return shell.Output(ctx, command[0], append(command[1:], args...)...)
}

// Start implements Cluster.
func (d *currentCluster) Start(ctx context.Context) error {
	version, err := d.runKubectl(ctx, "version")
	if err != nil {
		return err
	}
	fmt.Println("  using the current cluster:", version[strings.LastIndex(version, "\n")+1:])
	return nil
}

// BuildImages implements Cluster.
func (d *currentCluster) BuildImages(ctx context.Context) (err error) {
	build := buildDockerImages
	if d.loader.name == typeLocal {
		build = buildArchives
	}
	d.operatorImage, err = build(ctx)
	return err
}

// LoadImages implements Cluster.
func (d *currentCluster) LoadImages(ctx context.Context) (string, error) {
	if d.loader.name == typeLocal {
		return d.operatorImage, loadArchives(ctx, localName(os.Getenv("KUBECONFIG")))
	}
	return d.operatorImage, loadDockerImages(d.operatorImage, func(image string) error {
		if d.loader.program == "" {
			return nil
		}
		return shell.RunQuietly(ctx, d.loader.program, d.loader.load(image)...)
	})
}

// localName returns the name of a cluster of localcluster, whose kubeconfig is clusters/NAME/pki/admin.kubeconfig. All
// of these clusters have the same context.
func localName(kubeconfig string) string {
	return filepath.Base(filepath.Dir(filepath.Dir(kubeconfig)))
}

// KubeconfigPath implements Cluster.
func (d *currentCluster) KubeconfigPath(context.Context) (string, error) { return d.kubeconfig, nil }

// KubectlCommand implements Cluster.
func (d *currentCluster) KubectlCommand() []string {
	return []string{"kubectl", "--kubeconfig", d.kubeconfig}
}

// Delete implements Cluster. It deletes what the demo created, in the order in which the operator can clean up.
func (d *currentCluster) Delete(ctx context.Context) error {
	if err := d.Prepare(ctx); err != nil {
		return err
	}
	fmt.Println("deleting the namespaces of the demo, the operator and its CustomResourceDefinitions from the current cluster")
	if _, err := d.runKubectl(ctx, "delete", "namespace", "--ignore-not-found", SequencesNamespace, StaleNamespace, OrdersNamespace, SessionsNamespace); err != nil {
		return err
	}
	kubectl := "KUBECTL=" + strings.Join(d.KubectlCommand(), " ")
	if err := runMake(ctx, kubectl, "undeploy", "NAMESPACES=*", "REPORT_NAMESPACES="+StaleNamespace); err != nil {
		return err
	}
	if err := runMake(ctx, kubectl, "uninstall"); err != nil {
		return err
	}
	_, err := d.runKubectl(ctx, "delete", "namespace", "--ignore-not-found", BrokerNamespace)
	return err
}
