package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/hack/demo/shell"
)

const (
	often         = 200 * time.Millisecond
	operatorLimit = 2 * time.Minute
)

// deploy builds the operator and has it run in the cluster.
func (d *demo) deploy(ctx context.Context) error {
	var image string
	err := d.timed("built its image and loaded it into the cluster", func() (err error) {
		image, err = d.cluster.Image(ctx)
		return err
	})
	if err != nil {
		return err
	}
	err = d.timed("deployed "+image+" with `make deploy NAMESPACES='*'`", func() error {
		return shell.Quiet(ctx, "make", "--no-print-directory", "deploy", "IMG="+image, "NAMESPACES=*",
			"KUBECTL="+strings.Join(d.cluster.Kubectl(), " "))
	})
	if err != nil {
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
