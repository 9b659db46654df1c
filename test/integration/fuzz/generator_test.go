package fuzz

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

type schemaProps = apiextensionsv1.JSONSchemaProps

// sharedNames are names of objects, keys and containers. All kinds use them, so that references
// often lead to an object that exists, was deleted, or is of a surprising kind.
var sharedNames = []string{"a", "b", "c", "default", "jobs", "runner", "step", "worker"}

// generator makes random values that satisfy a schema and most of its rules. Equal random sources
// make equal values.
type generator struct{ *rand.Rand }

func (g generator) chance(probability float64) bool { return g.Float64() < probability }

func pick[T any](g generator, values ...T) T { return values[g.IntN(len(values))] }

// value returns a value of the schema for the property of this name.
func (g generator) value(s *schemaProps, property string) any {
	switch {
	case len(s.Enum) > 0:
		return decode(pick(g, s.Enum...).Raw)
	case s.XIntOrString && s.Pattern != "":
		return pick[any](g, "1", "10m", "64Mi", "1Gi", "0", "1.5", int64(g.IntN(8)))
	case s.XIntOrString:
		return pick[any](g, fmt.Sprintf("%d%%", g.IntN(101)), int64(g.IntN(8)))
	case s.Type == "object":
		return g.object(s)
	case s.Type == "array":
		return g.array(s, property)
	case s.Type == "string":
		return g.text(s, property)
	case s.Type == "integer":
		return g.integer(s)
	case s.Type == "number":
		return g.Float64() * 2
	case s.Type == "boolean":
		return g.chance(0.5)
	default: // any JSON value
		return pick[any](g, nil, "text", int64(1), []any{}, map[string]any{"a": []any{"b"}})
	}
}

func decode(raw []byte) any {
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		panic(err)
	}
	return value
}

// object returns the required properties and a few others, so that objects stay small even if a
// schema has as many properties as that of a Pod.
func (g generator) object(s *schemaProps) map[string]any {
	object := map[string]any{}
	var optional []string
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if slices.Contains(s.Required, name) {
			object[name] = g.property(s, name)
		} else if name != "finalizers" { // a user's finalizer keeps an object for as long as the user likes
			optional = append(optional, name)
		}
	}
	g.Shuffle(len(optional), func(i, j int) { optional[i], optional[j] = optional[j], optional[i] })
	for _, name := range optional[:min(len(optional), pick(g, 0, 1, 1, 2, 3, 5))] {
		object[name] = g.property(s, name)
	}
	if slices.Contains(optional, "image") && g.chance(0.8) {
		object["image"] = g.property(s, "image")
	}
	g.satisfyAlternatives(s, object)
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		for range g.IntN(3) {
			object[pick(g, "cpu", "memory", "A", "B_1", "example.com/key")] = g.value(s.AdditionalProperties.Schema, "")
		}
	}
	return object
}

var (
	// oneOfRule matches rules that demand exactly one of several properties.
	oneOfRule = regexp.MustCompile(`^has\(self\.\w+\) != has\(self\.\w+\)$|^(\(has\(self\.\w+\)\?1:0\)\+?)+ == 1$|^\[(has\(self\.\w+\)(, )?)+\]\.filter\(is, is\)\.size\(\) == 1$`)
	hasField  = regexp.MustCompile(`has\(self\.(\w+)\)`)
)

// satisfyAlternatives keeps or adds one of the properties of which rules demand exactly one.
func (g generator) satisfyAlternatives(s *schemaProps, object map[string]any) {
	for _, rule := range s.XValidations {
		if !oneOfRule.MatchString(rule.Rule) {
			continue
		}
		fields := hasField.FindAllStringSubmatch(rule.Rule, -1)
		chosen := pick(g, fields...)[1]
		for _, field := range fields {
			delete(object, field[1])
		}
		object[chosen] = g.property(s, chosen)
	}
}

func (g generator) property(s *schemaProps, name string) any {
	property := s.Properties[name]
	return g.value(&property, name)
}

// array returns few items. Items of sets and maps are unique.
func (g generator) array(s *schemaProps, property string) []any {
	items, seen := []any{}, map[string]bool{}
	shortest := 0
	if s.MinItems != nil {
		shortest = int(*s.MinItems)
	}
	for range shortest + pick(g, 0, 1, 1, 2) {
		item := g.value(s.Items.Schema, property)
		if key := itemKey(s, item); key == "" || !seen[key] {
			seen[key] = true
			items = append(items, item)
		}
	}
	return items
}

// itemKey returns what distinguishes an item from others, or the empty string if items can be equal.
func itemKey(s *schemaProps, item any) string {
	if s.XListType == nil {
		return ""
	}
	object, _ := item.(map[string]any)
	switch *s.XListType {
	case "set":
		return fmt.Sprint(item)
	case "map":
		key := "key"
		for _, name := range s.XListMapKeys {
			key += fmt.Sprintf("/%v", object[name])
		}
		return key
	default:
		return ""
	}
}

func (g generator) integer(s *schemaProps) any {
	lowest, highest := int64(0), int64(math.MaxInt32)
	if s.Minimum != nil {
		lowest = int64(*s.Minimum)
	}
	if s.Maximum != nil {
		highest = int64(*s.Maximum)
	}
	switch {
	case g.chance(0.05):
		return highest
	case g.chance(0.1):
		return lowest
	case g.chance(0.2):
		return lowest + g.Int64N(highest-lowest+1)
	default:
		return min(lowest+g.Int64N(5), highest)
	}
}

// text returns a string that the rules of the schema allow, or, if they do not say, one that suits
// the name of the property.
func (g generator) text(s *schemaProps, property string) string {
	var rules string
	for _, rule := range s.XValidations {
		rules += rule.Rule + "\n"
	}
	switch {
	case s.Format == "date-time":
		return time.Unix(g.Int64N(1<<32), 0).UTC().Format(time.RFC3339)
	case strings.Contains(rules, "duration(self)"):
		return g.duration(rules)
	case strings.Contains(rules, "isCIDR(self)") || property == "cidr" || property == "except":
		return pick(g, "10.0.0.0/8", "0.0.0.0/0", "fd00::/8", "192.0.2.1/32")
	case strings.Contains(rules, "isURL(self)"):
		return pick(g, "https://git.example/a/b.git", "ssh://git.example/a", "git@git.example:a/b")
	case strings.Contains(rules, "self.contains('/')"):
		return pick(g, "example.com/controller", "yardmaster.dev/sequentialjob-controller", "/")
	case property == "image" || strings.HasSuffix(property, "Images"):
		return pick(g, "registry.example/app:1", "app", "registry.example/*", "*")
	case property == "schedule" && g.chance(0.9):
		return pick(g, "* * * * *", "*/7 2-5 * * 1", "0 0 29 2 *", "@hourly", "30 2 * 3,10 0", "0 0 31 4 *")
	case property == "timeZone" && g.chance(0.9):
		return pick(g, "Etc/UTC", "Europe/Berlin", "Africa/Cairo")
	case property == "restartPolicy":
		return pick(g, "Always", "Never", "OnFailure")
	case s.Pattern != "":
		return shorten(s, g.matching(s.Pattern))
	default:
		return shorten(s, g.word())
	}
}

func (g generator) word() string {
	if g.chance(0.8) {
		return pick(g, sharedNames...)
	}
	return pick(g, "url", "10.0.0.1", "/data", "http://a.example", "x y", "ünïcode", "{}", strings.Repeat("w", g.IntN(300)+1))
}

func shorten(s *schemaProps, text string) string {
	if s.MaxLength != nil && int64(len(text)) > *s.MaxLength {
		return strings.ToValidUTF8(text[:*s.MaxLength], "")
	}
	return text
}

var (
	shortestRule = regexp.MustCompile(`duration\(self\) >= duration\('([^']+)'\)`)
	longestRule  = regexp.MustCompile(`duration\(self\) <= duration\('([^']+)'\)`)
)

// duration returns a duration between the bounds in the rules.
func (g generator) duration(rules string) string {
	bound := func(rule *regexp.Regexp, otherwise time.Duration) time.Duration {
		if match := rule.FindStringSubmatch(rules); match != nil {
			if d, err := time.ParseDuration(match[1]); err == nil {
				return d
			}
		}
		return otherwise
	}
	shortest, longest := bound(shortestRule, 0), bound(longestRule, time.Hour)
	switch g.IntN(7) {
	case 0:
		return fmt.Sprintf("%ds", int64(shortest.Seconds()))
	case 1:
		return fmt.Sprintf("%.0fh", longest.Hours())
	default:
		return fmt.Sprintf("%ds", int64((shortest + time.Duration(g.Int64N(int64(min(longest-shortest, time.Minute))+1))).Seconds()))
	}
}

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

// matching returns a random text that the regular expression matches.
func (g generator) matching(expression string) string {
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		panic(err)
	}
	var text strings.Builder
	g.write(&text, parsed.Simplify())
	return text.String()
}

func (g generator) write(text *strings.Builder, e *syntax.Regexp) {
	switch e.Op {
	case syntax.OpLiteral:
		text.WriteString(string(e.Rune))
	case syntax.OpCharClass:
		from := 2 * g.IntN(len(e.Rune)/2)
		// A negated class reaches up to the last code point. Its first few characters suffice.
		text.WriteRune(e.Rune[from] + rune(g.IntN(min(int(e.Rune[from+1]-e.Rune[from])+1, 26))))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		text.WriteByte('x')
	case syntax.OpCapture, syntax.OpConcat:
		for _, part := range e.Sub {
			g.write(text, part)
		}
	case syntax.OpAlternate:
		g.write(text, pick(g, e.Sub...))
	case syntax.OpQuest:
		g.repeat(text, e, g.IntN(2))
	case syntax.OpStar:
		g.repeat(text, e, g.IntN(6))
	case syntax.OpPlus:
		g.repeat(text, e, 1+g.IntN(6))
	default: // anchors and empty matches
	}
}

func (g generator) repeat(text *strings.Builder, e *syntax.Regexp, times int) {
	for range times {
		g.write(text, e.Sub[0])
	}
}
