package main

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// JobSet, whose replicated Jobs can depend on each other, is the nearest peer of SequentialJob. Its controller runs without leader election,
// metrics and webhooks, which the objects of this benchmark do not need: they have the values that its webhook would set.
const (
	jobSetModule  = "sigs.k8s.io/jobset@v0.12.0"
	jobSetWebhook = "127.0.0.1:9443"
	jobSetConfig  = `apiVersion: config.jobset.x-k8s.io/v1alpha1
kind: Configuration
leaderElection: {leaderElect: false}
internalCertManagement: {enable: false}
webhook: {host: 127.0.0.1, port: 9443, certDir: .}
`
)

var jobSetKind = schema.GroupVersionKind{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"}

// buildJobSet builds the controller of JobSet from its module, in a directory of its own, and installs its CustomResourceDefinition.
func buildJobSet(ctx context.Context, c *harness.Cluster) subject {
	var module struct{ Dir string }
	harness.Check(json.Unmarshal(harness.Must(exec.CommandContext(ctx, "go", "mod", "download", "-json", jobSetModule).Output()), &module))
	directory := harness.Must(filepath.Abs("bin/jobset"))
	harness.Check(os.MkdirAll(directory, 0o750))
	binary := filepath.Join(directory, "manager")
	harness.PrintProgress("building %s", jobSetModule)
	harness.Check(harness.RunCommand(ctx, "go", "build", "-C", module.Dir, "-o", binary, "."))
	certificate, key := harness.Must2(cert.GenerateSelfSignedCertKey("localhost", nil, nil))
	for name, content := range map[string]string{"config.yaml": jobSetConfig, "tls.crt": string(certificate), "tls.key": string(key)} {
		harness.Check(os.WriteFile(filepath.Join(directory, name), []byte(content), 0o600))
	}
	crd := &unstructured.Unstructured{}
	harness.Check(yaml.Unmarshal(harness.Must(os.ReadFile(filepath.Join(module.Dir, "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"))), crd))
	harness.Check(client.IgnoreAlreadyExists(c.Create(ctx, crd)))
	return subject{
		name: "JobSet",
		start: func(ctx context.Context, c *harness.Cluster, _ sequenceLoad, _ string) *testenv.Process {
			command := exec.CommandContext(ctx, binary, "--config", "config.yaml", "--kubeconfig", c.Kubeconfig,
				"--metrics-bind-address", "0", "--health-probe-bind-address", "0", "--zap-devel=false", "--zap-log-level", "error")
			log := harness.Must(os.Create(filepath.Join(directory, "manager.log")))
			defer log.Close()
			command.Dir, command.Stderr = directory, log
			process := harness.Must(testenv.StartProcess(command))
			harness.Check(harness.PollUntil(ctx, measurementTimeout, func() (bool, error) { // the webhook starts after the controllers
				connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", jobSetWebhook)
				if err != nil {
					return false, nil //nolint:nilerr // not yet
				}
				return true, connection.Close()
			}))
			return process
		},
		newSequence: sequenceLoad.newJobSet,
		areRecorded: func(ctx context.Context, c client.Reader, ns string) (bool, error) {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(jobSetKind)
			err := c.List(ctx, list, client.InNamespace(ns))
			return !slices.ContainsFunc(list.Items, func(set unstructured.Unstructured) bool {
				state, _, _ := unstructured.NestedString(set.Object, "status", "terminalState")
				return state != "Completed"
			}), err
		},
	}
}

// newJobSet returns a JobSet of which each replicated Job depends on the one before.
func (l sequenceLoad) newJobSet(i int, ns string) client.Object {
	var jobs []any
	for step := range l.steps {
		job := map[string]any{"name": stepName(step), "replicas": int64(1), "template": map[string]any{"spec": map[string]any{
			"parallelism": int64(1), "completions": int64(1), "completionMode": "Indexed", "backoffLimit": int64(0),
			"template": harness.Must(runtime.DefaultUnstructuredConverter.ToUnstructured(new(l.podTemplate(i, step)))),
		}}}
		if step > 0 {
			job["dependsOn"] = []any{map[string]any{"name": stepName(step - 1), "status": "Complete"}}
		}
		jobs = append(jobs, job)
	}
	set := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"replicatedJobs": jobs,
		"network":        map[string]any{"enableDNSHostnames": false},
		"successPolicy":  map[string]any{"operator": "All"},
		"startupPolicy":  map[string]any{"startupPolicyOrder": "AnyOrder"},
	}}}
	set.SetGroupVersionKind(jobSetKind)
	set.SetNamespace(ns)
	set.SetName(sequenceName(i))
	return set
}

// podTemplate returns the Pod of a step.
func (l sequenceLoad) podTemplate(sequence, step int) corev1.PodTemplateSpec {
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{harness.NewContainer(stepName(step))},
	}}
	template.Annotations = harness.RunningFor(l.stepDurationOf(sequence))
	return template
}
