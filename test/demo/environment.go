package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/demo/cluster"
	"github.com/yardmaster/yardmaster/test/demo/page"
	"github.com/yardmaster/yardmaster/test/demo/shell"
)

const pollInterval = 200 * time.Millisecond

// demoEnvironment is what all scenarios share.
type demoEnvironment struct {
	cluster cluster.Cluster
	page    *page.Page
	timeout time.Duration // how long a scenario may take

	image, kubeconfig string
	client            client.Client
	clientset         kubernetes.Interface
}

func (s *demoEnvironment) connectClients(ctx context.Context) error {
	kubeconfig, err := s.cluster.KubeconfigPath(ctx)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	s.kubeconfig = kubeconfig
	if s.client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	s.clientset, err = kubernetes.NewForConfig(config)
	return err
}

// showOperatorAfter prints the state of the operator, which may explain the error, and returns the error.
func (s *demoEnvironment) showOperatorAfter(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		s.page.PrintTitle("The operator")
		s.runKubectl(ctx, "-n", operatorNamespace, "get", "pods", "-o", "wide")
		s.runKubectl(ctx, "-n", operatorNamespace, "events")
		s.runKubectl(ctx, "-n", operatorNamespace, "logs", "-l", "app.kubernetes.io/name=yardmaster", "--tail=20", "--prefix")
	}
	return err
}

// waitUntil polls until the condition is true. The error is that of the last poll, if there is one.
func (*demoEnvironment) waitUntil(ctx context.Context, what string, condition func(context.Context) (bool, error)) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (done bool, err error) {
		done, last = condition(ctx)
		return done && last == nil, nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("%w: waiting for %s", context.Cause(ctx), what), last)
	}
	return nil
}

// runKubectl prints and runs a kubectl command. A failure is printed and does not end the demo.
func (s *demoEnvironment) runKubectl(ctx context.Context, args ...string) {
	s.page.PrintLine("\n  $ kubectl %s", strings.Join(quoteArguments(args), " "))
	command := s.cluster.KubectlCommand()
	if err := shell.Run(ctx, command[0], append(command[1:len(command):len(command)], args...)...); err != nil && !errors.Is(err, context.Canceled) {
		s.page.PrintLine("  %v", err)
	}
}

// readJobLog returns the logs of a Job's Pods, or "" if it has none yet.
func (s *demoEnvironment) readJobLog(ctx context.Context, namespace, job string) (log string, err error) {
	var pods corev1.PodList
	if err := s.client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{batchv1.JobNameLabel: job}); err != nil {
		return "", err
	}
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	for i := range pods.Items {
		raw, err := s.clientset.CoreV1().Pods(namespace).GetLogs(pods.Items[i].Name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err != nil {
			return log, err
		}
		log += string(raw)
	}
	return log, nil
}

func quoteArguments(args []string) []string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = arg
		if strings.ContainsAny(arg, " {}\"*") {
			quoted[i] = "'" + arg + "'"
		}
	}
	return quoted
}

// runKubectlQuietly runs a kubectl command, and returns its failure. Its output is not shown.
func (s *demoEnvironment) runKubectlQuietly(ctx context.Context, args ...string) error {
	if s.page.Verbose {
		s.page.PrintLine("  $ kubectl %s", strings.Join(quoteArguments(args), " "))
	}
	command := s.cluster.KubectlCommand()
	return shell.RunQuietly(ctx, command[0], append(command[1:len(command):len(command)], args...)...)
}

const namespaceTimeout = 2 * time.Minute

func readManifest(file, namespace string) (*unstructured.Unstructured, error) {
	content, err := os.ReadFile(filepath.Join("examples", file))
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(content, &object.Object); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	object.SetNamespace(namespace)
	return object, nil
}

// create creates an object, and refuses unknown fields.
func (s *demoEnvironment) create(ctx context.Context, object *unstructured.Unstructured) error {
	return s.client.Create(ctx, object, client.FieldValidation(metav1.FieldValidationStrict))
}

func checkRefusal(section *page.Section, file, message string, err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("%s was accepted, expected a refusal with: %s", file, message)
	case !strings.Contains(err.Error(), message):
		return fmt.Errorf("%s was refused, expected the message %q: %w", file, message, err)
	}
	section.Log("refused as expected: %v", err)
	return nil
}

// recreateNamespace creates a namespace and deletes an earlier one with the same name. It
// enforces the Pod Security Standard `restricted`, which the examples meet.
func (s *demoEnvironment) recreateNamespace(ctx context.Context, namespace string) error {
	fresh := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:   namespace,
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	if err := s.client.Delete(ctx, fresh.DeepCopy()); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return err
	}
	err := wait.PollUntilContextTimeout(ctx, pollInterval, namespaceTimeout, true, func(ctx context.Context) (bool, error) {
		err := s.client.Get(ctx, client.ObjectKeyFromObject(fresh), &corev1.Namespace{})
		return apierrors.IsNotFound(err), nil
	})
	if err != nil {
		return fmt.Errorf("namespace %s was not deleted within %s: %w", namespace, namespaceTimeout, err)
	}
	return s.client.Create(ctx, fresh)
}

const deploymentTimeout = 2 * time.Minute

func (d *demoRun) deployOperator(ctx context.Context, settings []string) error {
	kubectl := d.cluster.KubectlCommand()
	args := []string{"deploy", "IMG=" + d.image, "NAMESPACES=*", "REPORT_NAMESPACES=" + staleNamespace, "SETTINGS=" + strings.Join(settings, ",")}
	if d.page.Verbose {
		d.page.PrintLine("  $ make %s", strings.Join(quoteArguments(args), " "))
	}
	if err := shell.RunQuietly(ctx, "make", slices.Concat([]string{"--no-print-directory", "KUBECTL=" + strings.Join(kubectl, " ")}, args)...); err != nil {
		return err
	}
	if err := d.runKubectlQuietly(ctx, "annotate", "--overwrite", "namespace", operatorNamespace, cluster.MarkerAnnotation+"=true"); err != nil {
		return err
	}
	return d.waitForOperator(ctx)
}

func (d *demoRun) deployBroker(ctx context.Context) error {
	for _, args := range [][]string{
		{"apply", "-k", "config/nats"},
		{"annotate", "--overwrite", "namespace", brokerNamespace, cluster.MarkerAnnotation + "=true"},
		{"-n", brokerNamespace, "rollout", "status", "statefulset/nats", "--timeout=" + deploymentTimeout.String()},
	} {
		if err := d.runKubectlQuietly(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// waitForOperator waits until only Pods of the deployed version exist, and the API server reaches their webhook.
func (d *demoRun) waitForOperator(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, deploymentTimeout, fmt.Errorf("the operator was not ready within %s", deploymentTimeout))
	defer cancel()
	return d.waitUntil(ctx, "the operator", func(ctx context.Context) (bool, error) {
		deployment := &appsv1.Deployment{}
		if err := d.client.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: "yardmaster"}, deployment); err != nil {
			return false, err
		}
		if !isRolledOut(deployment) {
			return false, nil
		}
		var pods corev1.PodList
		err := d.client.List(ctx, &pods, client.InNamespace(operatorNamespace), client.MatchingLabels(deployment.Spec.Selector.MatchLabels))
		if err != nil || len(pods.Items) != int(*deployment.Spec.Replicas) {
			return false, err
		}
		return d.isWebhookReachable(ctx), nil
	})
}

// isWebhookReachable reports whether the API server can call the webhook. kube-proxy routes to a Pod a moment after it is ready.
func (d *demoRun) isWebhookReachable(ctx context.Context) bool {
	checked := &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "webhook-check"}}
	return !apierrors.IsInternalError(d.client.Create(ctx, checked, client.DryRunAll))
}

func isRolledOut(deployment *appsv1.Deployment) bool {
	status := deployment.Status
	return status.ObservedGeneration == deployment.Generation && status.Replicas > 0 &&
		status.UpdatedReplicas == status.Replicas && status.AvailableReplicas == status.Replicas
}
