package fuzz

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// reservedKeys are the labels and annotations with which the operator marks objects and users
// control it.
var reservedKeys = []string{
	"sequentialjob-uid", "sequentialjob", "step", "run", "generation", "spec-hash", "step-options", "suspended",
	"dead-letters", "abandon", "supersedes", "session", "session-uid", "attempt", "run-finished", "workerpool", "revision",
	"rollout-history", "image", "draining", "idle", "removable",
}

func (g generator) hostileText() string {
	return pick(g, "", " ", "-1", "0", "null", "{", "[]", "\n", "\x00", "\u202e", "💥", "../../etc/passwd", "{{.}}", "%s%n%!", "*",
		"kube-system", "yardmaster", "999999h999999h", "9223372036854775808", "1e308", "NaN", "-Inf", "9999999999999999999E",
		strings.Repeat("a", 300), strings.Repeat("é", 5000), strings.Repeat("\x01", 2000), strings.Repeat("long ", 20000))
}

func (g generator) hostileNumber() int64 {
	return pick[int64](g, -1, 0, math.MaxInt32, math.MaxInt32+1, math.MaxInt64, math.MinInt64, math.MinInt32)
}

// mutate replaces some values of an object by hostile ones, mostly of the same type.
func (g generator) mutate(object map[string]any) {
	for range 1 + g.IntN(3) {
		g.mutateOne(object)
	}
}

func (g generator) mutateOne(object map[string]any) {
	names := slices.Sorted(maps.Keys(object))
	if len(names) == 0 {
		return
	}
	name := pick(g, names...)
	switch value := object[name].(type) {
	case map[string]any:
		if g.chance(0.1) {
			value[g.hostileText()] = g.hostileText()
		} else {
			g.mutateOne(value)
		}
	case []any:
		g.mutateItems(object, name, value)
	case string:
		object[name] = g.hostileText()
	case int64:
		object[name] = g.hostileNumber()
	default:
		object[name] = pick[any](g, nil, true, g.hostileText(), g.hostileNumber(), map[string]any{})
	}
}

func (g generator) mutateItems(object map[string]any, name string, items []any) {
	switch {
	case len(items) == 0 || g.chance(0.2):
		object[name] = append(items, g.hostileText())
	case g.chance(0.1): // many items
		for i := range 500 {
			items = append(items, fmt.Sprint(i))
		}
		object[name] = items
	default:
		if item, ok := pick(g, items...).(map[string]any); ok {
			g.mutateOne(item)
		} else {
			items[g.IntN(len(items))] = g.hostileText()
		}
	}
}

// reservedMetadata returns labels or annotations that only the operator should set, with any value.
func (g generator) reservedMetadata() map[string]any {
	metadata := map[string]any{}
	for range 1 + g.IntN(3) {
		metadata["yardmaster.dev/"+pick(g, reservedKeys...)] = pick(g, g.word(), g.hostileText())
	}
	return metadata
}
