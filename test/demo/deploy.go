package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/test/demo/shell"
)

const (
	pollInterval    = 200 * time.Millisecond
	operatorTimeout = 2 * time.Minute
)

// deployOperator builds the operator and deploys it with settings that make the demo fast.
func (d *demoRun) deployOperator(ctx context.Context, settings []string) error {
	var image string
	err := d.runTimed("built its image and loaded it into the cluster", func() (err error) {
		image, err = d.cluster.LoadOperatorImage(ctx)
		return err
	})
	if err != nil {
		return err
	}
	kubectl := d.cluster.KubectlCommand()
	err = d.runTimed("deployed "+image+" with `make deploy NAMESPACES='*' REPORT_NAMESPACES="+staleNamespace+"`", func() error {
		return shell.RunQuietly(ctx, "make", "--no-print-directory", "deploy", "IMG="+image, "NAMESPACES=*",
			"REPORT_NAMESPACES="+staleNamespace, "KUBECTL="+strings.Join(kubectl, " "))
	})
	if err != nil {
		return err
	}
	set := slices.Concat([]string{"-n", operatorNamespace, "set", "env", "deployment/yardmaster"}, settings)
	d.screen.PrintLine("  $ kubectl %s \\\n      %s", strings.Join(set[:len(set)-len(settings)], " "), strings.Join(settings, " \\\n      "))
	if err := shell.RunQuietly(ctx, kubectl[0], slices.Concat(kubectl[1:], set)...); err != nil {
		return err
	}
	return d.runTimed("the operator is ready", func() error { return d.waitForOperator(ctx) })
}

// waitForOperator waits until only Pods of the deployed version exist.
func (d *demoRun) waitForOperator(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, operatorTimeout, fmt.Errorf("the operator was not ready within %s", operatorTimeout))
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		deployment := &appsv1.Deployment{}
		if err := d.client.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: "yardmaster"}, deployment); err != nil {
			return false, nil //nolint:nilerr // retried until the timeout
		}
		if !isRolledOut(deployment) {
			return false, nil
		}
		var pods corev1.PodList
		err := d.client.List(ctx, &pods, client.InNamespace(operatorNamespace), client.MatchingLabels(deployment.Spec.Selector.MatchLabels))
		return err == nil && len(pods.Items) == int(*deployment.Spec.Replicas), nil
	})
	if err != nil {
		return errors.Join(context.Cause(ctx))
	}
	return nil
}

func isRolledOut(deployment *appsv1.Deployment) bool {
	status := deployment.Status
	return status.ObservedGeneration == deployment.Generation && status.Replicas > 0 &&
		status.UpdatedReplicas == status.Replicas && status.AvailableReplicas == status.Replicas
}
