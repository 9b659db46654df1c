package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// specChange is a command that makes the same change to each named object.
type specChange[T client.Object] struct {
	kind              *resourceKind[T]
	verb, short, long string
	// apply changes the spec. It returns what to print after the object's name, and whether
	// the spec changed.
	apply func(T) (message string, changed bool)
	// overwrite writes the change even if someone else changed the object since it was read.
	overwrite bool
}

func newChangeCommand[T client.Object](env *environment, change specChange[T]) *cobra.Command {
	return &cobra.Command{
		Use:               change.verb + " NAME...",
		Short:             change.short,
		Long:              change.long + "\n\nIf an object cannot be changed, the others still are, and the exit code is 2.",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: change.kind.completeNames(env),
		RunE: func(command *cobra.Command, names []string) error {
			return change.applyToAll(command.Context(), env, names)
		},
	}
}

func (c *specChange[T]) applyToAll(ctx context.Context, env *environment, names []string) error {
	cluster, err := env.connect(env.clientConfig)
	if err != nil {
		return err
	}
	var failures []error
	for _, name := range names {
		message, err := c.applyToObject(ctx, cluster, name)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		fmt.Fprintln(env.out, message)
	}
	return errors.Join(failures...)
}

func (c *specChange[T]) applyToObject(ctx context.Context, cluster *clusterConnection, name string) (string, error) {
	object, err := c.kind.getObject(ctx, cluster, name)
	if err != nil {
		return "", err
	}
	before, ok := object.DeepCopyObject().(T)
	if !ok {
		return "", fmt.Errorf("copying a %s returned a %T", c.kind.kindName, before)
	}
	qualifiedName := c.kind.qualifiedName(object)
	message, changed := c.apply(object)
	switch {
	case !changed:
	case c.overwrite:
		err = cluster.Patch(ctx, object, client.MergeFrom(before))
	default:
		err = cluster.patchIfUnchanged(ctx, qualifiedName, before, object)
	}
	return qualifiedName + " " + message, err
}
