package main

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// switches is the source that is added to a package. Operators become calls, so no operand is written twice, however deep mutants
// are nested.
//
//go:embed switches.go.txt
var switches string

// swaps has the other operator of a mutant, and the function that chooses between both.
var swaps = map[token.Token]struct{ other, function string }{
	token.LAND: {"||", "mutantAnd"},
	token.LOR:  {"&&", "mutantOr"},
	token.LSS:  {"<=", "mutantLess"},
	token.GTR:  {">=", "mutantGreater"},
	token.LEQ:  {"<", "mutantLessOrEqual"},
	token.GEQ:  {">", "mutantGreaterOrEqual"},
	token.ADD:  {"-", "mutantAdd"},
	token.SUB:  {"+", "mutantSubtract"},
	token.MUL:  {"+", "mutantMultiply"},
	token.QUO:  {"*", "mutantDivide"},
}

// Mutant is a change of the source. The active mutant is chosen at run time, by its ID.
type Mutant struct {
	ID       int
	Position token.Position
	// Key has the file, the function and the change, and stays when lines move.
	Key   string
	edits func(id int) []edit
}

// edit is text in the place of the text from start to end. Where edits begin or end together, that of the larger node is outside.
type edit struct {
	start, end int
	text       string
	outer      int // offset of the other end of the node, for the order
	suffix     bool
}

// finder collects the mutants of one file.
type finder struct {
	fset     *token.FileSet
	info     *types.Info
	name     string
	source   []byte
	mutants  []*Mutant
	function string
	results  *ast.FieldList
}

func (f *finder) offset(pos token.Pos) int { return f.fset.Position(pos).Offset }

func (f *finder) text(n ast.Node) string {
	return strings.Join(strings.Fields(string(f.source[f.offset(n.Pos()):f.offset(n.End())])), " ")
}

func (f *finder) add(n ast.Node, change string, edits func(id int) []edit) {
	f.mutants = append(f.mutants, &Mutant{Position: f.fset.Position(n.Pos()), Key: f.name + " " + f.function + ": " + change, edits: edits})
}

// wrap surrounds a node.
func (f *finder) wrap(n ast.Node, before, after string) []edit {
	start, end := f.offset(n.Pos()), f.offset(n.End())
	return []edit{{start, start, before, end, false}, {end, end, after, start, true}}
}

func (f *finder) find(file *ast.File) {
	for _, declaration := range file.Decls {
		f.function, f.results = "package", nil
		if function, ok := declaration.(*ast.FuncDecl); ok {
			f.function, f.results = function.Name.Name, function.Type.Results
			if function.Recv != nil {
				f.function = strings.TrimPrefix(f.text(function.Recv.List[0].Type), "*") + "." + f.function
			}
		}
		f.visit(declaration)
	}
}

func (f *finder) visit(node ast.Node) {
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			outside := f.results
			f.results = n.Type.Results
			f.visit(n.Body)
			f.results = outside
			return false
		case *ast.BlockStmt:
			f.statements(n.List)
		case *ast.CaseClause:
			f.statements(n.Body)
		case *ast.IfStmt:
			f.negate(n.Cond)
		case *ast.ForStmt:
			f.negate(n.Cond)
		case *ast.SwitchStmt:
			for _, statement := range n.Body.List {
				if clause, ok := statement.(*ast.CaseClause); ok && n.Tag == nil {
					for _, condition := range clause.List {
						f.negate(condition)
					}
				}
			}
		case *ast.ReturnStmt:
			for _, result := range n.Results {
				f.negate(result)
			}
		case *ast.UnaryExpr:
			if n.Op == token.NOT {
				f.negate(n.X)
			}
		case *ast.BinaryExpr:
			f.operator(n)
		}
		return true
	})
}

// negate negates a condition. Of a conjunction or disjunction it negates each operand instead, by visit.
func (f *finder) negate(e ast.Expr) {
	if e == nil {
		return
	}
	switch inner := ast.Unparen(e).(type) {
	case *ast.BinaryExpr:
		if inner.Op == token.LAND || inner.Op == token.LOR {
			return
		}
	case *ast.UnaryExpr:
		if inner.Op == token.NOT {
			return
		}
	}
	if kind, ok := f.info.Types[e]; ok && kind.Value == nil && (kind.Type == types.Typ[types.Bool] || kind.Type == types.Typ[types.UntypedBool]) {
		f.add(e, "negate `"+f.text(e)+"`", func(id int) []edit { return f.wrap(e, "((", fmt.Sprintf(") != mutantIs(%d))", id)) })
	}
}

func (f *finder) operator(n *ast.BinaryExpr) {
	logical := n.Op == token.LAND || n.Op == token.LOR
	if logical {
		f.negate(n.X)
		f.negate(n.Y)
	}
	swap, ok := swaps[n.Op]
	kind := f.info.Types[n]
	operand, basic := f.info.Types[n.X].Type.Underlying().(*types.Basic)
	if !ok || kind.Value != nil || !basic || operand.Info()&types.IsString != 0 && n.Op == token.ADD {
		return
	}
	f.add(n, swap.other+" instead of "+n.Op.String()+" in `"+f.text(n)+"`", func(id int) []edit {
		edits := f.wrap(n, fmt.Sprintf("%s(%d, ", swap.function, id), ")")
		operator, separator := f.offset(n.OpPos), ", "
		if logical {
			edits[1].text, separator = ")})", ", func() bool { return ("
		}
		return append(edits, edit{start: operator, end: operator + len(n.Op.String()), text: separator})
	})
}

// statements drops statements of a block, and returns zero values in the place of results.
func (f *finder) statements(list []ast.Stmt) {
	for _, statement := range list {
		switch s := statement.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); ok && f.text(call.Fun) == "panic" {
				continue
			}
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
		case *ast.ReturnStmt:
			if len(s.Results) > 0 {
				f.zero(s)
				continue
			}
		case *ast.IncDecStmt, *ast.BranchStmt, *ast.DeferStmt, *ast.SendStmt:
		default:
			continue
		}
		f.add(statement, "drop `"+f.text(statement)+"`", func(id int) []edit {
			return f.wrap(statement, fmt.Sprintf("if !mutantIs(%d) { ", id), " }")
		})
	}
}

func (f *finder) zero(s *ast.ReturnStmt) {
	var zeros []string
	for _, field := range f.results.List {
		zeros = append(zeros, slices.Repeat([]string{"*new(" + f.text(field.Type) + ")"}, max(1, len(field.Names)))...)
	}
	if !slices.ContainsFunc(s.Results, func(e ast.Expr) bool { return !f.isZero(e) }) {
		return
	}
	f.add(s, "zero values instead of `"+f.text(s)+"`", func(id int) []edit {
		return f.wrap(s, fmt.Sprintf("if mutantIs(%d) { return %s }; ", id, strings.Join(zeros, ", ")), "")
	})
}

func (f *finder) isZero(e ast.Expr) bool {
	kind := f.info.Types[e]
	if kind.Value != nil {
		switch kind.Value.Kind() {
		case constant.Bool:
			return !constant.BoolVal(kind.Value)
		case constant.String:
			return constant.StringVal(kind.Value) == ""
		default:
			return constant.Sign(kind.Value) == 0
		}
	}
	literal, isLiteral := e.(*ast.CompositeLit)
	_, isStruct := kind.Type.Underlying().(*types.Struct)
	return kind.IsNil() || isLiteral && isStruct && len(literal.Elts) == 0
}

// rewrite returns the source with all mutants behind their switches.
func rewrite(source []byte, mutants []*Mutant) string {
	var edits []edit
	for _, mutant := range mutants {
		edits = append(edits, mutant.edits(mutant.ID)...)
	}
	slices.SortStableFunc(edits, func(a, b edit) int {
		switch {
		case a.start != b.start:
			return a.start - b.start
		case a.suffix != b.suffix: // what ends here comes before what starts here
			if a.suffix {
				return -1
			}
			return 1
		default: // The prefix of the larger node is first, and the suffix of the smaller node.
			return b.outer - a.outer
		}
	})
	// Nodes with the same range have their suffixes in the opposite order of their prefixes.
	for i := 0; i < len(edits); {
		end := i + 1
		for edits[i].suffix && end < len(edits) && edits[end].suffix && edits[end].start == edits[i].start && edits[end].outer == edits[i].outer {
			end++
		}
		slices.Reverse(edits[i:end])
		i = end
	}
	var out strings.Builder
	written := 0
	for _, e := range edits {
		out.Write(source[written:e.start])
		out.WriteString(e.text)
		written = max(written, e.end)
	}
	out.Write(source[written:])
	return out.String()
}
