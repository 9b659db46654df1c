package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/hack/demo/story"
)

const namespaceLimit = 2 * time.Minute

// apply puts the examples into a fresh namespace.
func (d *demo) apply(ctx context.Context) error {
	if err := d.freshNamespace(ctx); err != nil {
		return err
	}
	for _, example := range story.Examples() {
		if example.Missing != "" {
			d.screen.Say("  %s is not applied: it needs %s", example.File, example.Missing)
			continue
		}
		if err := d.applyExample(ctx, &example); err != nil {
			return err
		}
		if example.Applied() {
			d.examples = append(d.examples, &played{Example: example})
		}
	}
	return nil
}

// applyExample does what `kubectl apply` does with a new object.
func (d *demo) applyExample(ctx context.Context, example *story.Example) error {
	object, err := read(example.File)
	if err != nil {
		return err
	}
	d.screen.Say("  $ kubectl -n %s apply -f examples/%s", namespace, example.File)
	err = d.create(ctx, object)
	switch {
	case example.Refused == "":
		return err
	case err == nil:
		return fmt.Errorf("%s was taken, it should have been refused with: %s", example.File, example.Refused)
	case !strings.Contains(err.Error(), example.Refused):
		return fmt.Errorf("%s should have been refused with %q, not with: %w", example.File, example.Refused, err)
	}
	d.screen.Say("    %s", d.screen.Bad(err.Error()))
	d.screen.Say("    refused, as it should be")
	return nil
}

func read(file string) (*unstructured.Unstructured, error) {
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

// create tries again while the API server cannot reach the webhook: it may take a moment
// to learn where a new Pod is.
func (d *demo) create(ctx context.Context, object *unstructured.Unstructured) error {
	const limit = 20 * time.Second
	var last error
	err := wait.PollUntilContextTimeout(ctx, often, limit, true, func(ctx context.Context) (bool, error) {
		last = d.client.Create(ctx, object.DeepCopy(), client.FieldValidation(metav1.FieldValidationStrict))
		return last == nil || !strings.Contains(last.Error(), "failed calling webhook"), nil
	})
	if err != nil && ctx.Err() != nil {
		return err
	}
	return last
}

// freshNamespace makes the examples' namespace, without what an earlier demo left in it.
// It admits only Pods that are `restricted`, which those of the examples are.
func (d *demo) freshNamespace(ctx context.Context) error {
	fresh := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:   namespace,
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	old := fresh.DeepCopy()
	err := d.client.Delete(ctx, old)
	if err == nil {
		d.screen.Say("  removing what the last demo left in namespace %s", namespace)
	} else if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, often, namespaceLimit, true, func(ctx context.Context) (bool, error) {
		err := d.client.Get(ctx, client.ObjectKeyFromObject(fresh), &corev1.Namespace{})
		return apierrors.IsNotFound(err), nil
	})
	if err != nil {
		return fmt.Errorf("namespace %s was not gone within %s: %w", namespace, namespaceLimit, err)
	}
	return d.client.Create(ctx, fresh)
}
