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
	often         = 200 * time.Millisecond
	operatorLimit = 2 * time.Minute
)

// deploy builds the operator and has it run in the cluster, with settings for people who
// are watching.
func (d *demo) deploy(ctx context.Context, settings []string) error {
	var image string
	err := d.timed("built its image and loaded it into the cluster", func() (err error) {
		image, err = d.cluster.Image(ctx)
		return err
	})
	if err != nil {
		return err
	}
	kubectl := d.cluster.Kubectl()
	err = d.timed("deployed "+image+" with `make deploy NAMESPACES='*' REPORT_NAMESPACES="+staleNamespace+"`", func() error {
		return shell.Quiet(ctx, "make", "--no-print-directory", "deploy", "IMG="+image, "NAMESPACES=*",
			"REPORT_NAMESPACES="+staleNamespace, "KUBECTL="+strings.Join(kubectl, " "))
	})
	if err != nil {
		return err
	}
	set := slices.Concat([]string{"-n", operatorNamespace, "set", "env", "deployment/yardmaster"}, settings)
	d.screen.PrintLine("  $ kubectl %s \\\n      %s", strings.Join(set[:len(set)-len(settings)], " "), strings.Join(settings, " \\\n      "))
	if err := shell.Quiet(ctx, kubectl[0], slices.Concat(kubectl[1:], set)...); err != nil {
		return err
	}
	return d.timed("it is ready", func() error { return d.waitForOperator(ctx) })
}

// waitForOperator waits until the deployed version, and no other, is there.
func (d *demo) waitForOperator(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, operatorLimit, fmt.Errorf("the operator was not ready within %s", operatorLimit))
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, often, true, func(ctx context.Context) (bool, error) {
		deployment := &appsv1.Deployment{}
		if err := d.client.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: "yardmaster"}, deployment); err != nil {
			return false, nil //nolint:nilerr // tried again until time is up
		}
		if !rolledOut(deployment) {
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

func rolledOut(deployment *appsv1.Deployment) bool {
	status := deployment.Status
	return status.ObservedGeneration == deployment.Generation && status.Replicas > 0 &&
		status.UpdatedReplicas == status.Replicas && status.AvailableReplicas == status.Replicas
}
