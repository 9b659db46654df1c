// Package cluster starts the cluster for the demo, or finds one that exists.
package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/yardmaster/yardmaster/test/demo/shell"
)

// MarkerAnnotation is an annotation of the namespaces of the operator and of the broker that the demo created.
// In a cluster that the demo did not create, it does not change namespaces of others.
const MarkerAnnotation = "demo.yardmaster.dev/created"

// The namespaces of the examples, of the operator and of the broker.
const (
	SequencesNamespace = "yardmaster-demo"
	StaleNamespace     = "yardmaster-demo-stale"
	OrdersNamespace    = "yardmaster-demo-orders"
	SessionsNamespace  = "yardmaster-demo-sessions"
	OperatorNamespace  = "yardmaster-system"
	BrokerNamespace    = "nats"
)

// Cluster is the cluster that the demo uses.
type Cluster interface {
	// Prepare checks what is needed, and builds what the other methods need.
	Prepare(ctx context.Context) error
	// Start starts the cluster, unless it runs, and prints its progress.
	Start(ctx context.Context) error
	// BuildImages builds the images of the operator and of the examples. It needs no running cluster.
	BuildImages(ctx context.Context) error
	// LoadImages loads the images into the cluster, and returns the name of the operator's. A changed image has a different name.
	LoadImages(ctx context.Context) (operatorImage string, err error)
	// KubeconfigPath returns the path of the administrator's kubeconfig.
	KubeconfigPath(ctx context.Context) (string, error)
	// KubectlCommand returns the command that runs kubectl as the administrator. The cluster must have been started.
	KubectlCommand() []string
	// Delete deletes the cluster, or what the demo created in a cluster that it did not create.
	Delete(ctx context.Context) error
}

// The types of clusters.
const (
	typeLocal   = "localcluster"
	typeKind    = "kind"
	typeCurrent = "current"
)

// New returns a cluster of the given type: localcluster (the default), kind, or current for the one of the current kubeconfig.
func New(clusterType string) (Cluster, error) {
	switch clusterType {
	case "", typeLocal:
		return &localCluster{images: images{loader: localLoader, localName: localClusterName}}, nil
	case typeKind:
		loader, _ := loaderOf("kind-" + kindClusterName)
		path, err := filepath.Abs(demoKubeconfig)
		return &kindCluster{images{loader: loader}, kubeconfig{path}}, err
	case typeCurrent:
		return &currentCluster{}, nil
	default:
		return nil, fmt.Errorf("invalid CLUSTER %q: must be %s (needs Linux and root), %s (needs Docker) or %s (the cluster of your kubeconfig)",
			clusterType, typeLocal, typeKind, typeCurrent)
	}
}

const localClusterName = "demo"

// kubeconfig is the administrator's. It implements a part of Cluster.
type kubeconfig struct{ path string }

// KubeconfigPath implements Cluster.
func (d *kubeconfig) KubeconfigPath(context.Context) (string, error) { return d.path, nil }

// KubectlCommand implements Cluster.
func (d *kubeconfig) KubectlCommand() []string { return []string{"kubectl", "--kubeconfig", d.path} }

// images are built, and loaded into the cluster by its loader. It implements a part of Cluster.
type images struct {
	loader        imageLoader
	localName     string // of a cluster of localcluster
	operatorImage string
}

// BuildImages implements Cluster.
func (d *images) BuildImages(ctx context.Context) (err error) {
	build := buildDockerImages
	if d.loader.name == typeLocal {
		build = buildArchives
	}
	d.operatorImage, err = build(ctx)
	return err
}

// LoadImages implements Cluster.
func (d *images) LoadImages(ctx context.Context) (string, error) {
	if d.loader.name == typeLocal {
		return d.operatorImage, shell.RunQuietly(ctx, localClusterTool, slices.Concat([]string{"load-image", "--name", d.localName}, archives)...)
	}
	if d.loader.program == "" {
		return d.operatorImage, nil
	}
	for _, image := range append(slices.Collect(maps.Keys(exampleDockerImages)), d.operatorImage) {
		if err := shell.RunQuietly(ctx, d.loader.program, d.loader.load(image)...); err != nil {
			return d.operatorImage, err
		}
	}
	return d.operatorImage, nil
}

type localCluster struct {
	images
	kubeconfig
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
	path, err := shell.Output(ctx, localClusterTool, "kubeconfig", "--name", localClusterName)
	d.path = path
	return err
}

// KubectlCommand implements Cluster. An installed kubectl saves building one.
func (d *localCluster) KubectlCommand() []string {
	if _, err := exec.LookPath("kubectl"); err == nil {
		return d.kubeconfig.KubectlCommand()
	}
	tool, err := filepath.Abs(localClusterTool)
	if err != nil {
		tool = localClusterTool
	}
	return []string{tool, "kubectl", "--name", localClusterName, "--"}
}

// Delete implements Cluster.
func (d *localCluster) Delete(ctx context.Context) error {
	if err := d.Prepare(ctx); err != nil {
		return err
	}
	return shell.Run(ctx, localClusterTool, "down", "--name", localClusterName)
}

const (
	kindClusterName = "yardmaster-demo"
	// demoKubeconfig is a kubeconfig for clusters that have none of their own.
	demoKubeconfig = "dist/demo/kubeconfig"
)

// kindCluster is a cluster of kind, whose nodes are Docker containers.
type kindCluster struct {
	images
	kubeconfig
}

// Start implements Cluster.
func (d *kindCluster) Start(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(demoKubeconfig), 0o750); err != nil {
		return err
	}
	found, err := d.clusterExists(ctx)
	if err != nil {
		return err
	}
	if found {
		return shell.Run(ctx, typeKind, "export", "kubeconfig", "--name", kindClusterName, "--kubeconfig", demoKubeconfig)
	}
	return shell.Run(ctx, typeKind, "create", "cluster", "--name", kindClusterName, "--kubeconfig", demoKubeconfig, "--wait", "3m")
}

// Prepare implements Cluster. It returns an error for each missing program.
func (*kindCluster) Prepare(ctx context.Context) error {
	var missing []error
	for _, need := range []struct{ program, from string }{
		{"docker", "https://docs.docker.com/engine/install"},
		{typeKind, "https://kind.sigs.k8s.io"},
		{"kubectl", "https://kubernetes.io/docs/tasks/tools"},
	} {
		if _, err := exec.LookPath(need.program); err != nil {
			missing = append(missing, fmt.Errorf("CLUSTER=kind needs %s, which is not in the PATH: see %s", need.program, need.from))
		}
	}
	if len(missing) > 0 {
		return errors.Join(missing...)
	}
	if err := shell.RunQuietly(ctx, "docker", "info"); err != nil {
		return fmt.Errorf("CLUSTER=kind needs a running Docker: %w", err)
	}
	return nil
}

func (*kindCluster) clusterExists(ctx context.Context) (bool, error) {
	clusters, err := shell.Output(ctx, typeKind, "get", "clusters")
	return slices.Contains(strings.Fields(clusters), kindClusterName), err
}

// Delete implements Cluster.
func (*kindCluster) Delete(ctx context.Context) error {
	return shell.Run(ctx, typeKind, "delete", "cluster", "--name", kindClusterName)
}

const (
	localClusterTool  = "bin/localcluster"
	operatorBinary    = "bin/linux/yardmaster"
	operatorImageName = "yardmaster"
	// builtImage is the operator's image before it is named after its content.
	builtImage = operatorImageName + ":demo"
	// tagLength is the number of characters of a hash that distinguish images well enough.
	tagLength = 12
)

var archives = []string{"dist/yardmaster.tar", "dist/nats.tar", "dist/example-worker.tar", "dist/example-runner.tar"}

var exampleDockerImages = map[string]string{"example-worker:v1": "examples/worker", "example-runner:v1": "examples/runner"}

func runMake(ctx context.Context, args ...string) error {
	return shell.RunQuietly(ctx, "make", append([]string{"--no-print-directory"}, args...)...)
}

// buildArchives builds the images without Docker, and returns the name of the operator's. Its tag is a hash of its
// content, so that only a changed operator is rolled out.
func buildArchives(ctx context.Context) (operatorImage string, err error) {
	if err := runMake(ctx, "image", "IMG="+builtImage); err != nil {
		return "", err
	}
	tag, err := contentHashTag(operatorBinary)
	if err != nil {
		return "", err
	}
	operatorImage = operatorImageName + ":" + tag
	if err := runMake(ctx, "image", "IMG="+operatorImage); err != nil {
		return "", err
	}
	return operatorImage, shell.RunQuietly(ctx, "hack/images")
}

func contentHashTag(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil))[:tagLength], nil
}

// buildDockerImages builds the images with Docker, and returns the name of the operator's. Its tag is its Docker ID.
// The image of NATS comes from its registry.
func buildDockerImages(ctx context.Context) (operatorImage string, err error) {
	if err := runMake(ctx, "docker-build", "IMG="+builtImage); err != nil {
		return "", err
	}
	id, err := shell.Output(ctx, "docker", "image", "inspect", "--format", "{{.Id}}", builtImage)
	if err != nil {
		return "", err
	}
	id = strings.TrimPrefix(id, "sha256:")
	operatorImage = operatorImageName + ":" + id[:min(tagLength, len(id))]
	if err := shell.RunQuietly(ctx, "docker", "tag", builtImage, operatorImage); err != nil {
		return "", err
	}
	for image, directory := range exampleDockerImages {
		if err := shell.RunQuietly(ctx, "docker", "build", "--tag", image, "--file", directory+"/Dockerfile", "."); err != nil {
			return "", err
		}
	}
	return operatorImage, nil
}

// currentCluster is the cluster of the current kubeconfig. There is no registry from which every cluster can pull, so
// the demo needs a way to load images into the cluster.
type currentCluster struct {
	images
	kubeconfig
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
	d.loader, d.localName = loader, localName(os.Getenv("KUBECONFIG"))
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
	if d.path, err = filepath.Abs(demoKubeconfig); err != nil {
		return err
	}
	return os.WriteFile(d.path, []byte(content), fileMode)
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

// localName returns the name of a cluster of localcluster, whose kubeconfig is clusters/NAME/pki/admin.kubeconfig. All
// of these clusters have the same context.
func localName(kubeconfig string) string {
	return filepath.Base(filepath.Dir(filepath.Dir(kubeconfig)))
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
