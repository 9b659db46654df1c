package fuzz

import (
	"regexp/syntax"
	"strings"
)

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
