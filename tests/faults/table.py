from tests.faults.row import *
TABLE = (
    Row("nothing", "none", "Nothing is wrong.", AS_USUAL, variants=((SHORT,UNKNOWN),(SHORT,STALE),(SHORT,FRESH),(LONG,UNKNOWN),(WILD,UNKNOWN),(LONG_WILD,STALE))),
    Row("ban", "middleware", "A ban detection reads text", AS_USUAL, {"do": "text"}),
    Row("ignore", "middleware", "A ban detection reads text", HELD_BACK, {"do": "raise", "error": "IgnoreRequest"}, says=("seen enough",)),
)
