// Package harness contains what the benchmarks share: a control plane, a release build of the operator, brokers, and measurements of processes.
package harness

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/test/testbuilder"
	"github.com/yardmaster/yardmaster/test/testenv"
)

const (
	clusterName        = "bench"
	localclusterBinary = "bin/localcluster"
)

// Cluster is the control plane on which a benchmark runs.
type Cluster struct{ *testenv.Cluster }

// startControlPlane starts a local control plane, and returns its kubeconfig.
func startControlPlane(ctx context.Context) string {
	Check(RunCommand(ctx, localclusterBinary, "up", "--mode", "control-plane", "--name", clusterName))
	return strings.TrimSpace(string(Must(exec.CommandContext(ctx, localclusterBinary, "kubeconfig", "--name", clusterName).Output())))
}

// ConnectToCluster connects to a running cluster.
func ConnectToCluster(kubeconfig string) (*Cluster, error) {
	c, err := testenv.Connect(kubeconfig)
	if err != nil {
		return nil, err
	}
	return &Cluster{c}, nil
}

// stopControlPlane stops the local control plane, even if ctx has ended.
func stopControlPlane(ctx context.Context) {
	if err := RunCommand(context.WithoutCancel(ctx), localclusterBinary, "down", "--name", clusterName); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
}

// KillControlPlane kills the process of the API server, etcd and all controllers, calls do with the
// directory of etcd's data, starts the process again, and returns when /readyz succeeds.
func (c *Cluster) KillControlPlane(ctx context.Context, do func(etcd string) error) (downtime time.Duration, err error) {
	controlPlane, err := c.findComponentProcess("control-plane")
	if err != nil {
		return 0, err
	}
	status, err := processStatus(controlPlane)
	if err != nil {
		return 0, err
	}
	supervisor, err := strconv.Atoi(status[1])
	if err != nil {
		return 0, err
	}
	// A stopped supervisor does not restart the control plane.
	if err := syscall.Kill(supervisor, syscall.SIGSTOP); err != nil {
		return 0, fmt.Errorf("stopping the supervisor: %w", err)
	}
	killedAt := time.Now()
	if err = syscall.Kill(controlPlane, syscall.SIGKILL); err == nil {
		err = errors.Join(waitUntilExited(ctx, controlPlane), do(filepath.Join(c.directory(), "etcd")))
	}
	if err := errors.Join(err, syscall.Kill(supervisor, syscall.SIGCONT)); err != nil {
		return 0, fmt.Errorf("killing the control plane: %w", err)
	}
	err = c.waitUntilReady(ctx)
	return time.Since(killedAt), err
}

// PauseControlPlane stops the process of the API server, etcd and all controllers while do runs with
// the directory of etcd's data, whose files then are as after a crash.
func (c *Cluster) PauseControlPlane(ctx context.Context, do func(etcd string) error) error {
	controlPlane, err := c.findComponentProcess("control-plane")
	if err != nil {
		return err
	}
	if err := syscall.Kill(controlPlane, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("pausing the control plane: %w", err)
	}
	err = PollUntil(ctx, time.Minute, func() (bool, error) {
		state, err := processStatus(controlPlane)
		return err == nil && state[0] == "T", err
	})
	if err == nil {
		err = do(filepath.Join(c.directory(), "etcd"))
	}
	return errors.Join(err, syscall.Kill(controlPlane, syscall.SIGCONT))
}

// RestartComponent kills the process of a component of the local cluster, which starts it again.
func (c *Cluster) RestartComponent(component string) error {
	pid, err := c.findComponentProcess(component)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("killing %s: %w", component, err)
	}
	return nil
}

// waitUntilExited waits until a killed process has closed its files. It stays a zombie while its supervisor is stopped.
func waitUntilExited(ctx context.Context, pid int) error {
	return PollUntil(ctx, time.Minute, func() (bool, error) {
		state, err := processStatus(pid)
		return err != nil || state[0] == "Z", nil //nolint:nilerr // no process, no status
	})
}

// directory returns the directory of the local cluster, which contains the kubeconfig.
func (c *Cluster) directory() string { return filepath.Dir(filepath.Dir(c.Kubeconfig)) }

// waitUntilReady opens a new connection for each request. An existing connection could wait for a retry and delay the result.
func (c *Cluster) waitUntilReady(ctx context.Context) error {
	config := rest.CopyConfig(c.Config)
	config.Timeout = time.Second
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	return PollEvery(ctx, 10*time.Millisecond, 2*time.Minute, func() (bool, error) {
		client.CloseIdleConnections()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/readyz", http.NoBody)
		if err != nil {
			return false, err
		}
		response, err := client.Do(request)
		if err != nil {
			return false, nil //nolint:nilerr // the API server does not answer yet
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK, nil
	})
}

// findComponentProcess finds the process of a component of the local cluster by its environment. The kubeconfig is in the cluster's directory.
func (c *Cluster) findComponentProcess(component string) (pid int, err error) {
	directory := c.directory()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		environment, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		if err != nil { // a process of another user
			continue
		}
		text := "\x00" + string(environment)
		if strings.Contains(text, "\x00LOCALCLUSTER_DIR="+directory+"\x00") && strings.Contains(text, "\x00LOCALCLUSTER_COMPONENT="+component+"\x00") {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("no process of %s found for %s: outages require a local cluster", component, directory)
}

// processStatus returns the fields of /proc/PID/stat after the command: the state, the parent's process ID and others.
func processStatus(pid int) ([]string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:])), nil
}

const (
	brokerSecret = "broker"
	// CreateConcurrency is the number of concurrent requests that create objects.
	CreateConcurrency = 16
)

// Environment is a namespace with Queues and WorkerPools.
type Environment string

// CreateNamespace creates the namespace and a Secret with the URL of the broker.
func (env Environment) CreateNamespace(ctx context.Context, c client.Client, url string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: string(env)}}
	if err := client.IgnoreAlreadyExists(c.Create(ctx, ns)); err != nil {
		return err
	}
	secret := &corev1.Secret{ObjectMeta: env.ObjectMeta(brokerSecret), StringData: map[string]string{"url": url}}
	metav1.SetMetaDataLabel(&secret.ObjectMeta, v1alpha1.LabelBroker, "true")
	return c.Create(ctx, secret)
}

// StartOperator starts an operator, with more flags, that watches the namespace, or several whose names are joined by commas.
func (env Environment) StartOperator(ctx context.Context, binary string, c *Cluster, flags ...string) *testenv.Operator {
	return Must(testenv.StartOperator(ctx, binary, c.Cluster, append(flags, "--namespaces", string(env))...))
}

// ObjectMeta returns the metadata of an object in the environment.
func (env Environment) ObjectMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: string(env)}
}

// NewQueue returns a Queue on the environment's broker.
func (env Environment) NewQueue(name string) *v1alpha1.Queue {
	broker := &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
	broker.URLSecretRef.Name = brokerSecret
	return &v1alpha1.Queue{ObjectMeta: env.ObjectMeta(name), Spec: v1alpha1.QueueSpec{QueueSettings: v1alpha1.QueueSettings{Broker: broker}, Name: name}}
}

// NewWorkerPool returns a WorkerPool for the queue of the same name. It scales to zero when idle.
func (env Environment) NewWorkerPool(name string) *v1alpha1.WorkerPool {
	return &v1alpha1.WorkerPool{ObjectMeta: env.ObjectMeta(name), Spec: v1alpha1.WorkerPoolSpec{
		Queues:      []v1alpha1.PoolQueue{{LocalReference: v1alpha1.LocalReference{Name: name}}},
		Autoscaling: &v1alpha1.Autoscaling{MaxReplicas: 10},
		Template: &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: v1alpha1.WorkerContainer, Image: "registry.example/worker:1.2.3"}},
		}},
	}}
}

// CreateAll creates the given number of objects, several at the same time.
func CreateAll(ctx context.Context, c client.Client, count int, object func(i int) client.Object) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(CreateConcurrency)
	for i := range count {
		group.Go(func() error { return c.Create(ctx, object(i)) })
	}
	return group.Wait()
}

// NewRunner returns a SessionRunner.
func (env Environment) NewRunner(name string) *v1alpha1.SessionRunner {
	runner := &v1alpha1.SessionRunner{ObjectMeta: env.ObjectMeta(name)}
	runner.Spec.Image, testbuilder.RunnerPod(&runner.Spec).SecurityContext.RunAsUser = "registry.example/runner:1", new(int64(65532))
	return runner
}

// NewSequentialJob returns a SequentialJob whose steps have these names. On simulated nodes, each of them takes this long.
func (env Environment) NewSequentialJob(name string, duration time.Duration, steps ...string) *v1alpha1.SequentialJob {
	sj := &v1alpha1.SequentialJob{ObjectMeta: env.ObjectMeta(name)}
	sj.Spec.Template = &v1alpha1.PodTemplate{PodTemplateSpec: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: RunningFor(duration)}}}
	for _, step := range steps {
		sj.Spec.Containers = append(sj.Spec.Containers, v1alpha1.Step{Name: step, Container: NewContainer(step)})
	}
	return sj
}

// ListOf returns an empty list of a kind of the operator.
func ListOf(kind string) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
	return list
}

// ObservedGeneration returns the generation that the object's status was derived from.
func ObservedGeneration(object *unstructured.Unstructured) int64 {
	generation, _, _ := unstructured.NestedInt64(object.Object, "status", "observedGeneration")
	return generation
}

// NewContainer returns the container of a step.
func NewContainer(name string) corev1.Container {
	return corev1.Container{Name: name, Image: "registry.example/tool:1", Command: []string{"run"}}
}

// RunningFor returns annotations from which simulated nodes read how long a Pod runs.
func RunningFor(duration time.Duration) map[string]string {
	return map[string]string{"sim.localcluster.dev/duration": duration.String()}
}

// WaitUntilReconciled waits until the given numbers of Queues are ready and of WorkerPools have current metrics.
func (env Environment) WaitUntilReconciled(ctx context.Context, c client.Reader, patience time.Duration, queues, pools int) error {
	reportedAt := time.Now()
	return PollUntil(ctx, patience, func() (bool, error) {
		ready, fresh, err := env.countReconciled(ctx, c)
		if err != nil || ready == queues && fresh == pools {
			return true, err
		}
		if time.Since(reportedAt) > 10*time.Second {
			reportedAt = time.Now()
			PrintProgress("%d Queues and %d WorkerPools are reconciled", ready, fresh)
		}
		return false, clock.SleepContext(ctx, time.Second) // lists of thousands of objects would add load to the control plane
	})
}

// countReconciled returns the number of Queues that are ready and of WorkerPools with current metrics.
func (env Environment) countReconciled(ctx context.Context, c client.Reader) (queues, pools int, err error) {
	var allQueues v1alpha1.QueueList
	var allPools v1alpha1.WorkerPoolList
	for _, list := range []client.ObjectList{&allQueues, &allPools} {
		err = errors.Join(err, c.List(ctx, list, client.InNamespace(string(env))))
	}
	for i := range allQueues.Items {
		if meta.IsStatusConditionTrue(allQueues.Items[i].Status.Conditions, v1alpha1.ConditionReady) {
			queues++
		}
	}
	for i := range allPools.Items {
		active := meta.FindStatusCondition(allPools.Items[i].Status.Conditions, v1alpha1.ConditionScalingActive)
		if active != nil && active.Reason != v1alpha1.ReasonMetricsStale {
			pools++
		}
	}
	return queues, pools, err
}

// DeleteObjects deletes the objects of the environment. The broker and its queues are removed separately.
func (env Environment) DeleteObjects(ctx context.Context, c client.Client) {
	if err := env.deleteAll(context.WithoutCancel(ctx), c); err != nil {
		fmt.Fprintln(os.Stderr, "bench: deleting the environment:", err)
	}
}

func (env Environment) deleteAll(ctx context.Context, c client.Client) error {
	group, requests := errgroup.WithContext(ctx)
	group.SetLimit(CreateConcurrency)
	for _, kind := range []string{"Queue", "WorkerPool"} {
		list := ListOf(kind)
		if err := c.List(ctx, list, client.InNamespace(string(env))); err != nil {
			return errors.Join(err, group.Wait())
		}
		for i := range list.Items {
			group.Go(func() error { return DeleteWithoutFinalizers(requests, c, &list.Items[i]) })
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return c.Delete(ctx, &corev1.Secret{ObjectMeta: env.ObjectMeta(brokerSecret)})
}

// DeleteWithoutFinalizers deletes an object whose deletion the operator cannot complete: it does not run, or has no broker.
func DeleteWithoutFinalizers(ctx context.Context, c client.Writer, o client.Object) error {
	none := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	if err := c.Patch(ctx, o, none); err != nil {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(c.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground)))
}
